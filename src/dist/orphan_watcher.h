#pragma once

#include <chrono>

#include <sys/types.h>

#include "dist/file_descriptor.h"

namespace ampkit::dist {

/// A small process that ends process groups with SIGKILL if this process dies
/// without having done so itself, by SIGKILL for example.
class OrphanWatcher {
 public:
  /// Groups are given `grace` to end by themselves.
  explicit OrphanWatcher(std::chrono::milliseconds grace);
  ~OrphanWatcher();
  OrphanWatcher(const OrphanWatcher&) = delete;
  OrphanWatcher& operator=(const OrphanWatcher&) = delete;
  OrphanWatcher(OrphanWatcher&&) = delete;
  OrphanWatcher& operator=(OrphanWatcher&&) = delete;

  void watch(pid_t group) const;
  void forget(pid_t group) const;

  /// At most so many groups at a time.
  static constexpr int kMaxGroups = 1024;

 private:
  FileDescriptor line_; // closes when this process dies
  pid_t process_ = -1;
};

} // namespace ampkit::dist
