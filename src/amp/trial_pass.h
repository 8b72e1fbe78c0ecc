#pragma once

namespace ampkit {

/// While it lives, losses of this thread are tried out: no step follows, so
/// that a GradScaler takes none of them for a fault.
class TrialPass {
 public:
  TrialPass();
  ~TrialPass();
  TrialPass(const TrialPass&) = delete;
  TrialPass& operator=(const TrialPass&) = delete;

  static bool active();

 private:
  bool before_;
};

} // namespace ampkit
