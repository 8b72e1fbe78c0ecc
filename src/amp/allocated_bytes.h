#pragma once

#include <algorithm>
#include <cstdint>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace ampkit {

/// Counts what LibTorch's CPU allocator gives to the calling thread and takes
/// back from it, while a guard lives:
///
///     const auto bytes = std::make_shared<AllocatedBytes>();
///     const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE,
///     bytes);
class AllocatedBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(
      void* /*pointer*/,
      int64_t size,
      size_t /*total_allocated*/,
      size_t /*total_reserved*/,
      c10::Device /*device*/) override {
    held_ += size;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  /// Given out and not taken back; below 0 if older memory was freed.
  int64_t held() const { return held_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

} // namespace ampkit
