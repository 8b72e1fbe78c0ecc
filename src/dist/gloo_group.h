#pragma once

#include <ampkit/dist/context.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/watched_group.h"

namespace ampkit::dist {

/// Connects this rank to the others by Gloo. Its abort() closes the
/// connections.
c10::intrusive_ptr<WatchedGroup> make_gloo_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    const LaunchEnvironment& environment,
    const InitOptions& options);

} // namespace ampkit::dist
