#pragma once

namespace ampkit::app {

/// What the program's exit status says. Frozen: scripts depend on the numbers.
enum ExitCode : int {
  kDone = 0,
  /// Training went wrong: not finite for too long, out of memory, a bug.
  kFailed = 1,
  /// The command line, the configuration or the data it names is wrong.
  kUsage = 2,
  /// A checkpoint is unreadable, damaged or of another model.
  kCheckpoint = 3,
  /// Another rank was lost, or could not be reached: dist::kLostPeerStatus.
  kLostPeer = 4,
  /// `ampkit diagnose`, `compare` or `rollout` found what is wrong, and printed
  /// it.
  kFound = 5,
  /// Stopped by SIGINT or SIGTERM after saving; --resume goes on.
  kInterrupted = 130,
};

} // namespace ampkit::app
