#pragma once

#include <csignal>
#include <optional>

#include "dist/file_descriptor.h"

namespace ampkit::dist {

/// While it lives, the signals that concern a launch are read here instead of
/// ending this process.
class LaunchSignals {
 public:
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;
  LaunchSignals(LaunchSignals&&) = delete;
  LaunchSignals& operator=(LaunchSignals&&) = delete;

  /// Readable when a signal came.
  int file() const { return file_.number(); }

  /// The next one, if there is one; SIGCHLD among them.
  std::optional<int> next() const;

 private:
  sigset_t before_{};
  FileDescriptor file_;
};

} // namespace ampkit::dist
