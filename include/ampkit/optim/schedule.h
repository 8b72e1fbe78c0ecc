#pragma once

#include <cstdint>
#include <string>
#include <variant>
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

/// `factor` times the base rate for `total_iters` steps, then the base rate.
struct ConstantLROptions {
  /// In [0, 1]. 0 for good, as in Python, unless total_iters is 0: 1 / 0.
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};

/// From `start_factor` to `end_factor` times the base rate in `total_iters`
/// steps, then constant.
struct LinearLROptions {
  /// In (0, 1].
  double start_factor = 1.0 / 3;
  /// In [0, 1].
  double end_factor = 1.0;
  int64_t total_iters = 5;
};

/// From the base rate to `eta_min` in `T_max` steps along half a cosine, and
/// back in the next `T_max`.
struct CosineAnnealingLROptions {
  /// >= 1.
  int64_t T_max = 0;
  double eta_min = 0;
};

using ScheduleOptions =
    std::variant<ConstantLROptions, LinearLROptions, CosineAnnealingLROptions>;

/// Schedules one after the other. Each takes over at its milestone with the
/// base rate.
class AMPKIT_API SequentialLR : public LRScheduler {
 public:
  /// `milestones`: the steps at which the second, third, ... schedule begins,
  /// increasing, >= 0. Throws c10::ValueError for options out of range, or
  /// unless there is one milestone fewer than schedules.
  SequentialLR(
      torch::optim::Optimizer& optimizer,
      std::vector<ScheduleOptions> schedules,
      std::vector<int64_t> milestones);

 protected:
  double rate(size_t g, int64_t step, double lr) const override;
  const char* kind() const override { return "SequentialLR"; }
  io::StateDict settings() const override;

 private:
  std::vector<ScheduleOptions> schedules_;
  std::vector<int64_t> milestones_;
};

/// torch.optim.lr_scheduler.ConstantLR. Throws c10::ValueError for options out
/// of range, as the next two do.
class AMPKIT_API ConstantLR : public SequentialLR {
 public:
  explicit ConstantLR(
      torch::optim::Optimizer& optimizer,
      const ConstantLROptions& options = {});

 protected:
  const char* kind() const override { return "ConstantLR"; }
};

/// torch.optim.lr_scheduler.LinearLR.
class AMPKIT_API LinearLR : public SequentialLR {
 public:
  explicit LinearLR(
      torch::optim::Optimizer& optimizer, const LinearLROptions& options = {});

 protected:
  const char* kind() const override { return "LinearLR"; }
};

/// torch.optim.lr_scheduler.CosineAnnealingLR.
class AMPKIT_API CosineAnnealingLR : public SequentialLR {
 public:
  CosineAnnealingLR(
      torch::optim::Optimizer& optimizer,
      const CosineAnnealingLROptions& options);

 protected:
  const char* kind() const override { return "CosineAnnealingLR"; }
};

/// Settings of a WarmupCosineLR.
struct WarmupCosineLROptions {
  /// Steps of linear increase to the base rate; >= 0, < total_steps.
  int64_t warmup_steps = 0;
  /// Step at which eta_min is reached; from there on the rate stays.
  int64_t total_steps = 0;
  /// Of the base rate, at step 0; in (0, 1].
  double start_factor = 1e-3;
  double eta_min = 0;
};

/// Warm-up, then cosine: Python's SequentialLR of a LinearLR and a
/// CosineAnnealingLR, up to total_steps. Beyond them that would rise again;
/// this stays.
class AMPKIT_API WarmupCosineLR : public SequentialLR {
 public:
  /// Throws c10::ValueError for options out of range.
  WarmupCosineLR(
      torch::optim::Optimizer& optimizer, const WarmupCosineLROptions& options);

 protected:
  double rate(size_t g, int64_t step, double lr) const override;
  const char* kind() const override { return "WarmupCosineLR"; }

 private:
  int64_t total_steps_;
};

/// Settings of a OneCycleLR; the defaults are those of torch.optim's.
struct OneCycleLROptions {
  /// Highest rate: one for all groups, or one a group; > 0.
  std::vector<double> max_lr;
  /// >= 2. Stepping beyond throws.
  int64_t total_steps = 0;
  /// Part of the steps that goes up; in [0, 1), and not exactly one step.
  double pct_start = 0.3;
  /// false: straight lines.
  bool cosine = true;
  /// Moves momentum (SGD) or the first beta (Adam, AdamW) the other way.
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  /// The first rate is max_lr / this.
  double div_factor = 25;
  /// The last rate is the first one / this.
  double final_div_factor = 1e4;
  /// Down to the first rate as fast as up, then to the last one.
  bool three_phase = false;
};

/// torch.optim.lr_scheduler.OneCycleLR (Smith and Topin, 2018). The groups'
/// present rates are not used.
class AMPKIT_API OneCycleLR : public LRScheduler {
 public:
  /// Throws c10::ValueError for options out of range, and if momentum is to be
  /// cycled and the optimizer has none.
  OneCycleLR(
      torch::optim::Optimizer& optimizer, const OneCycleLROptions& options);

 protected:
  double rate(size_t g, int64_t step, double lr) const override;
  void check_step(int64_t step) const override;
  void apply_extras(int64_t step) override;
  const char* kind() const override { return "OneCycleLR"; }
  io::StateDict settings() const override;

 private:
  struct Levels { // what one quantity is at the turning points
    double start = 0;
    double peak = 0;
    double end = 0;
  };
  struct Place { // phase of a step, and how far along it
    size_t phase = 0;
    double fraction = 0;
  };

  Place place(int64_t step) const;
  double anneal(const Levels& levels, int64_t step) const;

  OneCycleLROptions options_;
};

} // namespace ampkit::optim
