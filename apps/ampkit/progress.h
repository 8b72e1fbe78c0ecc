#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

#include <ampkit/zoo/train/records.h>

namespace ampkit::app {

struct ProgressOptions {
  /// A bar that redraws itself; otherwise a plain line now and then.
  bool terminal = false;
  /// Columns of the terminal.
  int64_t width = 80;
  int64_t total_steps = 0;
  int64_t epochs = 0;
};

/// What a person sees of a training run.
class Progress {
 public:
  Progress(std::ostream& out, const ProgressOptions& options);

  void on_step(const zoo::StepRecord& record);
  void on_eval(const zoo::EvalRecord& record);
  /// A line of its own.
  void note(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  std::string bar(const zoo::StepRecord& record) const;
  std::string line(const zoo::StepRecord& record) const;
  double seconds_left(int64_t step) const;
  void clear_bar();

  std::ostream& out_;
  ProgressOptions options_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_;
  int64_t first_step_ = -1; // a resumed run does not begin at 0
  int64_t last_line_ = 0;
  bool bar_shown_ = false;
};

} // namespace ampkit::app
