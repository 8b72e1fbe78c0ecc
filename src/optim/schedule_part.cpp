#include "schedule_part.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace ampkit::optim {
namespace {

constexpr double kPi = std::numbers::pi;

double real(int64_t value) {
  return static_cast<double>(value);
}

// For each kind of schedule a formula() of step, base and present rate, or
// advance() from one step to the next, with first() and take_over() where these
// are not the present rate and the base rate.

double first(const ConstantLROptions& o, const Moment& now) {
  return now.lr * o.factor;
}

double take_over(const ConstantLROptions& o, const Moment& now) {
  return now.base * (o.factor + (0 >= o.total_iters ? 1 - o.factor : 0.0));
}

double advance(const ConstantLROptions& o, const Moment& now) {
  return now.step != o.total_iters ? now.lr : now.lr * (1.0 / o.factor);
}

double first(const LinearLROptions& o, const Moment& now) {
  return now.lr * o.start_factor;
}

double take_over(const LinearLROptions& o, const Moment& now) {
  return now.base * (o.start_factor +
                     (o.end_factor - o.start_factor) * 0 / real(o.total_iters));
}

double advance(const LinearLROptions& o, const Moment& now) {
  if (now.step > o.total_iters) {
    return now.lr;
  }
  const double rise = o.end_factor - o.start_factor;
  return now.lr * (1.0 + rise / (real(o.total_iters) * o.start_factor +
                                 real(now.step - 1) * rise));
}

double take_over(const CosineAnnealingLROptions& o, const Moment& now) {
  return o.eta_min + (now.base - o.eta_min) * (1 + std::cos(0.0)) / 2;
}

double advance(const CosineAnnealingLROptions& o, const Moment& now) {
  const double period = real(o.T_max);
  if ((now.step - 1 - o.T_max) % (2 * o.T_max) == 0) {
    // The step before was at the bottom, where the other formula divides by 0.
    return now.lr + (now.base - o.eta_min) * (1 - std::cos(kPi / period)) / 2;
  }
  return (1 + std::cos(kPi * real(now.step) / period)) /
             (1 + std::cos(kPi * real(now.step - 1) / period)) *
             (now.lr - o.eta_min) +
         o.eta_min;
}

double advance(const StepLROptions& o, const Moment& now) {
  return now.step % o.step_size != 0 ? now.lr : now.lr * o.gamma;
}

/// The factor of the milestones at `step`.
double drop(const MultiStepLROptions& o, int64_t step) {
  return std::pow(o.gamma, real(std::ranges::count(o.milestones, step)));
}

double first(const MultiStepLROptions& o, const Moment& now) {
  return now.lr * drop(o, 0);
}

double take_over(const MultiStepLROptions& o, const Moment& now) {
  return now.base * drop(o, 0);
}

double advance(const MultiStepLROptions& o, const Moment& now) {
  return now.lr * drop(o, now.step);
}

double advance(const PolynomialLROptions& o, const Moment& now) {
  if (now.step > o.total_iters) {
    return now.lr;
  }
  const double total = real(o.total_iters);
  return now.lr * std::pow(
                      (1.0 - real(now.step) / total) /
                          (1.0 - real(now.step - 1) / total),
                      o.power);
}

double formula(const CosineAnnealingWarmRestartsOptions& o, const Moment& now) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  int64_t since = now.step;
  int64_t period = o.T_0;
  if (o.T_mult == 1) {
    since %= period;
  }
  while (since >= period) {
    since -= period;
    period = period > most / o.T_mult ? most : period * o.T_mult;
  }
  return o.eta_min + (now.base - o.eta_min) *
                         (1 + std::cos(kPi * real(since) / real(period))) / 2;
}

double formula(const WarmupPolynomialLROptions& o, const Moment& now) {
  const double init = o.lr_init > 0 ? o.lr_init : now.base;
  if (init == 0) {
    return 0;
  }
  if (now.step < o.warmup_steps) {
    return now.base * (real(now.step) / real(o.warmup_steps));
  }
  if (now.step > o.total_steps) {
    return now.base * (o.lr_end / init);
  }
  const double remaining = 1 - real(now.step - o.warmup_steps) /
                                   real(o.total_steps - o.warmup_steps);
  const double decay =
      (init - o.lr_end) * std::pow(remaining, o.power) + o.lr_end;
  return now.base * (decay / init);
}

/// Part of a warm-up that is done after `progress` of its steps.
double rise(RampShape shape, double progress) {
  switch (shape) {
    case RampShape::cosine:
      return 0.5 * (1.0 - std::cos(kPi * progress));
    case RampShape::one_minus_sqrt:
      return 1.0 - std::sqrt(1.0 - progress);
    default:
      return progress;
  }
}

/// Part of a decay that remains after `progress` of its steps.
double fall(RampShape shape, double progress, double num_cycles) {
  switch (shape) {
    case RampShape::cosine:
      return 0.5 * (1.0 + std::cos(kPi * num_cycles * 2.0 * progress));
    case RampShape::one_minus_sqrt:
      return 1.0 - std::sqrt(progress);
    default:
      return 1.0 - progress;
  }
}

double formula(const WarmupStableDecayLROptions& o, const Moment& now) {
  const auto scaled = [&](double factor) {
    factor = factor * (1.0 - o.min_lr_ratio) + o.min_lr_ratio;
    return now.base * std::max(0.0, factor);
  };
  if (now.step < o.warmup_steps) {
    return scaled(rise(o.warmup, real(now.step) / real(o.warmup_steps)));
  }
  const int64_t decayed = now.step - o.warmup_steps - o.stable_steps;
  if (decayed < 0) {
    return now.base;
  }
  return decayed < o.decay_steps
             ? scaled(fall(
                   o.decay, real(decayed) / real(o.decay_steps), o.num_cycles))
             : now.base * o.min_lr_ratio;
}

/// Part of the way to the SWA rate at `step`.
double way(const SWALROptions& o, int64_t step) {
  const double t = std::clamp(
      real(step) / real(std::max<int64_t>(1, o.anneal_epochs)), 0.0, 1.0);
  return o.cosine ? (1 - std::cos(kPi * t)) / 2 : t;
}

double formula(const SWALROptions& o, const Moment& now) {
  const double target = o.swa_lr[o.swa_lr.size() == 1 ? 0 : now.group];
  const int64_t step =
      o.anneal_epochs == 0 ? std::max<int64_t>(1, now.step) : now.step;
  const double before = way(o, step - 1);
  const double alpha = way(o, step);
  const double origin =
      before == 1 ? target : (now.lr - before * target) / (1 - before);
  return target * alpha + origin * (1 - alpha);
}

template <class Options>
concept HasFormula = requires(const Options& options, const Moment& now) {
  formula(options, now);
};

template <class Options>
double first(const Options&, const Moment& now) {
  return now.lr;
}

template <class Options>
double take_over(const Options&, const Moment& now) {
  return now.base;
}

template <HasFormula Options>
double first(const Options& options, const Moment& now) {
  return formula(options, now);
}

template <HasFormula Options>
double take_over(const Options& options, const Moment& now) {
  return formula(options, now);
}

template <HasFormula Options>
double advance(const Options& options, const Moment& now) {
  return formula(options, now);
}

} // namespace

double first_rate(const ScheduleOptions& options, const Moment& now) {
  return std::visit([&](const auto& o) { return first(o, now); }, options);
}

double take_over_rate(const ScheduleOptions& options, const Moment& now) {
  return std::visit([&](const auto& o) { return take_over(o, now); }, options);
}

double next_rate(const ScheduleOptions& options, const Moment& now) {
  return std::visit([&](const auto& o) { return advance(o, now); }, options);
}

} // namespace ampkit::optim
