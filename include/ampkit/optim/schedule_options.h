#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace ampkit::optim {

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

/// `gamma` times the rate every `step_size` steps: the steps before
/// `step_size` have the base rate, that one has the next.
struct StepLROptions {
  /// >= 1.
  int64_t step_size = 0;
  double gamma = 0.1;
};

/// `gamma` times the rate at each milestone; one that is listed twice counts
/// twice.
struct MultiStepLROptions {
  /// In any order; >= 0.
  std::vector<int64_t> milestones;
  double gamma = 0.1;
};

/// From the base rate to `eta_min` along half a cosine, then again from the
/// base rate, `T_mult` times as long as before.
struct CosineAnnealingWarmRestartsOptions {
  /// Steps to the first restart; >= 1.
  int64_t T_0 = 0;
  /// >= 1.
  int64_t T_mult = 1;
  double eta_min = 0;
};

/// From the base rate to 0 in `total_iters` steps, as `power` of the part that
/// remains.
struct PolynomialLROptions {
  /// >= 0.
  int64_t total_iters = 5;
  /// >= 0.
  double power = 1.0;
};

/// transformers' get_polynomial_decay_schedule_with_warmup: linearly from 0 to
/// the base rate, then to `lr_end` as `power` of the part that remains.
struct WarmupPolynomialLROptions {
  /// Steps of increase; >= 0, < total_steps.
  int64_t warmup_steps = 0;
  /// Step at which lr_end is reached; from there on the rate stays.
  int64_t total_steps = 0;
  /// >= 0, < lr_init if that is given.
  double lr_end = 1e-7;
  /// >= 0.
  double power = 1.0;
  /// Rate of which lr_end is the end; a group with another base rate keeps its
  /// ratio to it. Python takes the optimizer's default. 0: the group's own base
  /// rate, so that each group ends at lr_end.
  double lr_init = 0;
};

/// How a rate moves between two levels.
enum class RampShape {
  linear,
  /// Half a cosine.
  cosine,
  /// Python's "1-sqrt": fast where the rate is low in a warm-up, at once in a
  /// decay.
  one_minus_sqrt,
};

/// transformers' get_wsd_schedule: warm-up to the base rate, stable, decay,
/// from then on the lowest rate.
struct WarmupStableDecayLROptions {
  /// >= 0, as the next two. Python's num_training_steps is their sum.
  int64_t warmup_steps = 0;
  int64_t stable_steps = 0;
  int64_t decay_steps = 0;
  RampShape warmup = RampShape::linear;
  RampShape decay = RampShape::cosine;
  /// Lowest rate, at both ends, as a part of the base rate; in [0, 1].
  double min_lr_ratio = 0;
  /// Waves of a cosine decay; half a wave goes down once.
  double num_cycles = 0.5;
};

/// From the present rate to `swa_lr` in `anneal_epochs` steps, then constant.
/// Unlike the others it starts from whatever rate the optimizer has, so that it
/// can follow another schedule.
struct SWALROptions {
  /// One for all groups, or one a group; >= 0.
  std::vector<double> swa_lr;
  /// >= 0. 0: swa_lr at once, when the schedule is made.
  int64_t anneal_epochs = 10;
  /// false: a straight line.
  bool cosine = true;
};

/// What a SequentialLR or a ChainedScheduler is made of.
using ScheduleOptions = std::variant<
    ConstantLROptions,
    LinearLROptions,
    CosineAnnealingLROptions,
    StepLROptions,
    MultiStepLROptions,
    CosineAnnealingWarmRestartsOptions,
    PolynomialLROptions,
    WarmupPolynomialLROptions,
    WarmupStableDecayLROptions,
    SWALROptions>;

} // namespace ampkit::optim
