#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ampkit {

/// While it lives, ops of this thread run in the dtypes of their inputs, on
/// every device: for code that has chosen the dtypes, and that an autocast
/// region around it (a backward pass called inside one, say) must not undo.
class NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

} // namespace ampkit
