#include <cmath>
#include <string>

#include <c10/util/Exception.h>

#include "schedule_part.h"
#include "schedule_state.h"

namespace ampkit::optim {
namespace {

using BaseRates = std::vector<double>;

void check_factor(
    const char* who, const char* field, double value, bool zero_allowed) {
  TORCH_CHECK_VALUE(
      value <= 1 && (value > 0 || (zero_allowed && value == 0)),
      who,
      ": ",
      field,
      " must be in ",
      zero_allowed ? "[0, 1]" : "(0, 1]",
      ", got ",
      value);
}

void check_at_least(
    const char* who, const char* field, int64_t value, int64_t low) {
  TORCH_CHECK_VALUE(
      value >= low, who, ": ", field, " must be >= ", low, ", got ", value);
}

void check_not_negative(const char* who, const char* field, double value) {
  TORCH_CHECK_VALUE(
      std::isfinite(value) && value >= 0,
      who,
      ": ",
      field,
      " must be finite and >= 0, got ",
      value);
}

// For each kind of schedule: check(), and put() of its settings.

void check(const ConstantLROptions& o, const BaseRates&) {
  check_factor("ConstantLR", "factor", o.factor, /*zero_allowed=*/true);
  check_at_least("ConstantLR", "total_iters", o.total_iters, 0);
}

void put(const ConstantLROptions& o, io::StateDict& state) {
  state.set("kind", "ConstantLR");
  state.set("factor", o.factor);
  state.set("total_iters", o.total_iters);
}

void check(const LinearLROptions& o, const BaseRates&) {
  check_factor("LinearLR", "start_factor", o.start_factor, false);
  check_factor("LinearLR", "end_factor", o.end_factor, true);
  check_at_least("LinearLR", "total_iters", o.total_iters, 0);
}

void put(const LinearLROptions& o, io::StateDict& state) {
  state.set("kind", "LinearLR");
  state.set("start_factor", o.start_factor);
  state.set("end_factor", o.end_factor);
  state.set("total_iters", o.total_iters);
}

void check(const CosineAnnealingLROptions& o, const BaseRates&) {
  check_at_least("CosineAnnealingLR", "T_max", o.T_max, 1);
}

void put(const CosineAnnealingLROptions& o, io::StateDict& state) {
  state.set("kind", "CosineAnnealingLR");
  state.set("T_max", o.T_max);
  state.set("eta_min", o.eta_min);
}

void check(const StepLROptions& o, const BaseRates&) {
  check_at_least("StepLR", "step_size", o.step_size, 1);
  check_not_negative("StepLR", "gamma", o.gamma);
}

void put(const StepLROptions& o, io::StateDict& state) {
  state.set("kind", "StepLR");
  state.set("step_size", o.step_size);
  state.set("gamma", o.gamma);
}

void check(const MultiStepLROptions& o, const BaseRates&) {
  for (const int64_t milestone : o.milestones) {
    check_at_least("MultiStepLR", "milestones", milestone, 0);
  }
  check_not_negative("MultiStepLR", "gamma", o.gamma);
}

void put(const MultiStepLROptions& o, io::StateDict& state) {
  state.set("kind", "MultiStepLR");
  for (size_t i = 0; i < o.milestones.size(); ++i) {
    state.set("milestone." + std::to_string(i), o.milestones[i]);
  }
  state.set("gamma", o.gamma);
}

void check(const CosineAnnealingWarmRestartsOptions& o, const BaseRates&) {
  check_at_least("CosineAnnealingWarmRestarts", "T_0", o.T_0, 1);
  check_at_least("CosineAnnealingWarmRestarts", "T_mult", o.T_mult, 1);
}

void put(const CosineAnnealingWarmRestartsOptions& o, io::StateDict& state) {
  state.set("kind", "CosineAnnealingWarmRestarts");
  state.set("T_0", o.T_0);
  state.set("T_mult", o.T_mult);
  state.set("eta_min", o.eta_min);
}

void check(const PolynomialLROptions& o, const BaseRates&) {
  check_at_least("PolynomialLR", "total_iters", o.total_iters, 0);
  check_not_negative("PolynomialLR", "power", o.power);
}

void put(const PolynomialLROptions& o, io::StateDict& state) {
  state.set("kind", "PolynomialLR");
  state.set("total_iters", o.total_iters);
  state.set("power", o.power);
}

void check(const WarmupPolynomialLROptions& o, const BaseRates&) {
  constexpr const char* who = "WarmupPolynomialLR";
  check_at_least(who, "warmup_steps", o.warmup_steps, 0);
  check_at_least(who, "total_steps", o.total_steps, o.warmup_steps + 1);
  check_not_negative(who, "lr_end", o.lr_end);
  check_not_negative(who, "power", o.power);
  check_not_negative(who, "lr_init", o.lr_init);
  // The own base rate is not checked: on resuming it is whatever the optimizer
  // had, until load_state_dict().
  TORCH_CHECK_VALUE(
      o.lr_init == 0 || o.lr_end < o.lr_init,
      who,
      ": lr_end must be smaller than lr_init ",
      o.lr_init,
      ", got ",
      o.lr_end);
}

void put(const WarmupPolynomialLROptions& o, io::StateDict& state) {
  state.set("kind", "WarmupPolynomialLR");
  state.set("warmup_steps", o.warmup_steps);
  state.set("total_steps", o.total_steps);
  state.set("lr_end", o.lr_end);
  state.set("power", o.power);
  state.set("lr_init", o.lr_init);
}

void check(const WarmupStableDecayLROptions& o, const BaseRates&) {
  constexpr const char* who = "WarmupStableDecayLR";
  check_at_least(who, "warmup_steps", o.warmup_steps, 0);
  check_at_least(who, "stable_steps", o.stable_steps, 0);
  check_at_least(who, "decay_steps", o.decay_steps, 0);
  check_factor(who, "min_lr_ratio", o.min_lr_ratio, /*zero_allowed=*/true);
  check_not_negative(who, "num_cycles", o.num_cycles);
}

const char* name_of(RampShape shape) {
  switch (shape) {
    case RampShape::cosine:
      return "cosine";
    case RampShape::one_minus_sqrt:
      return "1-sqrt";
    default:
      return "linear";
  }
}

void put(const WarmupStableDecayLROptions& o, io::StateDict& state) {
  state.set("kind", "WarmupStableDecayLR");
  state.set("warmup_steps", o.warmup_steps);
  state.set("stable_steps", o.stable_steps);
  state.set("decay_steps", o.decay_steps);
  state.set("warmup", name_of(o.warmup));
  state.set("decay", name_of(o.decay));
  state.set("min_lr_ratio", o.min_lr_ratio);
  state.set("num_cycles", o.num_cycles);
}

void check(const SWALROptions& o, const BaseRates& base_lrs) {
  TORCH_CHECK_VALUE(
      o.swa_lr.size() == 1 || o.swa_lr.size() == base_lrs.size(),
      "SWALR: swa_lr must have 1 value or one for each of the ",
      base_lrs.size(),
      " parameter groups, got ",
      o.swa_lr.size());
  for (const double value : o.swa_lr) {
    check_not_negative("SWALR", "swa_lr", value);
  }
  check_at_least("SWALR", "anneal_epochs", o.anneal_epochs, 0);
}

void put(const SWALROptions& o, io::StateDict& state) {
  state.set("kind", "SWALR");
  set_reals(state, "swa_lr", o.swa_lr);
  state.set("anneal_epochs", o.anneal_epochs);
  state.set("cosine", o.cosine);
}

} // namespace

void check_options(
    const ScheduleOptions& options, const std::vector<double>& base_lrs) {
  std::visit([&](const auto& o) { check(o, base_lrs); }, options);
}

io::StateDict settings_of(const ScheduleOptions& options) {
  io::StateDict state;
  std::visit([&](const auto& o) { put(o, state); }, options);
  return state;
}

io::StateDict settings_of(const std::vector<ScheduleOptions>& schedules) {
  io::StateDict state;
  for (size_t i = 0; i < schedules.size(); ++i) {
    state.set_all(std::to_string(i), settings_of(schedules[i]));
  }
  return state;
}

} // namespace ampkit::optim
