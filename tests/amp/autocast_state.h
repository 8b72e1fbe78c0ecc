#pragma once

#include <ATen/autocast_mode.h>

namespace ampkit {

/// Whether LibTorch's own autocasting is on for the CPU in this thread.
inline bool autocast_on() {
  return at::autocast::is_autocast_enabled(at::kCPU);
}

} // namespace ampkit
