#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/amp/step_result.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/optim/schedule.h>
#include <ampkit/zoo/train/config.h>

namespace ampkit::zoo {

/// What ScheduleConfig::name may be.
std::vector<std::string> schedule_names();

/// The learning rates of one optimizer over a run, in force at once: a schedule
/// of steps and, for "plateau", one of evaluations on top of it. The rate that
/// the optimizer has is the highest.
class Schedule {
 public:
  /// Throws ConfigError if a milestone lies in the warm-up.
  Schedule(
      const ScheduleConfig& config,
      torch::optim::Optimizer& optimizer,
      int64_t total_steps);

  /// Advances unless the step was skipped; says whether. Waits for the device.
  bool step(const StepResult& result) { return steps_->step(result); }

  /// Takes the loss of an evaluation.
  void evaluated(double loss);

  /// Entries "schedule.*" and, of "plateau", "plateau.*".
  io::StateDict state_dict() const;
  /// Restores the progress. The optimizer's rates are those of one of the two
  /// parts: restore the optimizer's own afterwards.
  void load_state_dict(const io::StateDict& state);

 private:
  std::unique_ptr<optim::LRScheduler> steps_;
  std::optional<optim::ReduceLROnPlateau> plateau_;
};

} // namespace ampkit::zoo
