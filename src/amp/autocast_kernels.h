#pragma once

#include <c10/core/DeviceType.h>

#include "amp/cast_cache.h"

namespace ampkit {

/// What the replaced autocast kernels look at; one a thread.
struct ThreadAutocast {
  /// Whether the innermost region of that device type is an ampkit guard's.
  bool cpu = false;
  bool cuda = false;
  bool cache_enabled = true;
  /// Ampkit guards in force; the cache lives while there are any.
  int depth = 0;
  CastCache cache;

  bool& of(c10::DeviceType type) {
    return type == c10::DeviceType::CUDA ? cuda : cpu;
  }
};

ThreadAutocast& thread_autocast();

/// Replaces LibTorch's low-precision autocast kernels for CPU and CUDA by ones
/// that use the thread's CastCache inside an ampkit guard and do exactly what
/// the stock ones do elsewhere. Once a process; thread-safe.
void install_autocast_kernels();

} // namespace ampkit
