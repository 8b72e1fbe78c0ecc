#pragma once

#include <c10/util/Exception.h>

namespace ampkit {

/// Drops the warnings of this thread while it lives. LibTorch warns of every
/// kernel that is replaced, which is just what our registrations mean to do.
class Silence {
 private:
  class Drop : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Drop drop_;
  c10::WarningUtils::WarningHandlerGuard guard_{&drop_};
};

} // namespace ampkit
