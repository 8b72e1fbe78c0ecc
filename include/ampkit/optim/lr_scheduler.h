#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ampkit/amp/step_result.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ampkit::optim {

/// Sets the learning rates of all groups of any torch::optim optimizer, step by
/// step. Names, formulas and values are those of torch.optim.lr_scheduler:
/// each class computes the next rate from the present one, in the same order of
/// operations, so that a rate that was set by hand in between carries on, and
/// so that values are equal to Python's to the last bit.
///
///     WarmupCosineLR schedule(
///         optimizer, {.warmup_steps = 500, .total_steps = 10000});
///     ...
///     schedule.step(scaler.step(optimizer));   // after the optimizer's step
///
/// The base rate of a group is what it has when the schedule is made, which
/// sets the rate of step 0 at once. The optimizer must live longer, and keep
/// its number of groups. Not thread-safe.
class AMPKIT_API LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Advances by one step.
  void step();

  /// Advances only if the optimizer's step was taken; says whether. Waits for
  /// the device.
  bool step(const StepResult& result);

  /// The rates set last, one a group.
  const std::vector<double>& last_lr() const { return last_lr_; }

  /// Steps since the schedule was made; Python's last_epoch.
  int64_t steps() const { return steps_; }

  /// Settings, progress, base rates and rates.
  io::StateDict state_dict() const;

  /// Restores the progress and sets the optimizer's rates. Throws c10::Error,
  /// having changed nothing, if the state is of another kind of schedule, other
  /// settings or another number of groups.
  void load_state_dict(const io::StateDict& state);

 protected:
  explicit LRScheduler(torch::optim::Optimizer& optimizer);

  /// Sets the rates of step 0; the last act of each constructor.
  void begin();

  /// The rate of group `g` at step `step`, with the present rate `lr`.
  virtual double rate(size_t g, int64_t step, double lr) const = 0;
  /// Throws if there is no `step`.
  virtual void check_step(int64_t step) const;
  /// Whatever else is cycled.
  virtual void apply_extras(int64_t step);
  virtual const char* kind() const = 0;
  virtual io::StateDict settings() const = 0;

  torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  const std::vector<double>& base_lrs() const { return base_lrs_; }

 private:
  void apply(int64_t step);
  void check_state(const io::StateDict& state) const;

  torch::optim::Optimizer* optimizer_;
  std::vector<double> base_lrs_;
  std::vector<double> last_lr_;
  int64_t steps_ = 0;
};

} // namespace ampkit::optim
