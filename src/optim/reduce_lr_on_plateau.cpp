#include <ampkit/optim/reduce_lr_on_plateau.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <c10/util/Exception.h>

#include "schedule_state.h"

namespace ampkit::optim {
namespace {

constexpr const char* kKind = "ReduceLROnPlateau";

using Options = ReduceLROnPlateauOptions;

void check_not_negative(const char* field, double value) {
  TORCH_CHECK_VALUE(
      value >= 0, kKind, ": ", field, " must be >= 0, got ", value);
}

void check_options(const Options& o, size_t groups) {
  TORCH_CHECK_VALUE(
      o.factor > 0 && o.factor < 1,
      kKind,
      ": factor must be in (0, 1), got ",
      o.factor);
  check_not_negative("patience", static_cast<double>(o.patience));
  check_not_negative("threshold", o.threshold);
  check_not_negative("cooldown", static_cast<double>(o.cooldown));
  check_not_negative("eps", o.eps);
  TORCH_CHECK_VALUE(
      o.min_lr.size() == 1 || o.min_lr.size() == groups,
      kKind,
      ": min_lr must have 1 value or one for each of the ",
      groups,
      " parameter groups, got ",
      o.min_lr.size());
  for (const double value : o.min_lr) {
    check_not_negative("min_lr", value);
  }
}

} // namespace

ReduceLROnPlateau::ReduceLROnPlateau(
    torch::optim::Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : optimizer_(&optimizer),
      options_(options),
      last_lr_(current_lrs(optimizer)) {
  check_options(options_, last_lr_.size());
  options_.min_lr.resize(last_lr_.size(), options_.min_lr.front());
  if (options_.mode == Options::Mode::max) {
    progress_.best = -progress_.best;
  }
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const bool less = options_.mode == Options::Mode::min;
  const double threshold = less ? -options_.threshold : options_.threshold;
  const double bar = options_.threshold_mode == Options::ThresholdMode::rel
                         ? progress_.best * (1.0 + threshold)
                         : progress_.best + threshold;
  return less ? metric < bar : metric > bar;
}

void ReduceLROnPlateau::reduce(std::vector<double>& rates) const {
  for (size_t g = 0; g < rates.size(); ++g) {
    const double lower =
        std::max(rates[g] * options_.factor, options_.min_lr[g]);
    if (rates[g] - lower > options_.eps) {
      rates[g] = lower;
    }
  }
}

void ReduceLROnPlateau::step(double metric) {
  check_groups(kKind, *optimizer_, last_lr_.size());
  ++progress_.steps;
  if (is_better(metric)) {
    progress_.best = metric;
    progress_.bad_steps = 0;
  } else {
    ++progress_.bad_steps;
  }
  if (progress_.cooldown > 0) {
    --progress_.cooldown;
    progress_.bad_steps = 0;
  }
  last_lr_ = current_lrs(*optimizer_);
  if (progress_.bad_steps > options_.patience) {
    reduce(last_lr_);
    set_lrs(*optimizer_, last_lr_);
    progress_.cooldown = options_.cooldown;
    progress_.bad_steps = 0;
  }
}

bool ReduceLROnPlateau::step(double metric, const StepResult& result) {
  const bool stepped = result.stepped(); // waits for the device
  if (stepped) {
    step(metric);
  }
  return stepped;
}

io::StateDict ReduceLROnPlateau::settings() const {
  io::StateDict state;
  state.set("mode", options_.mode == Options::Mode::min ? "min" : "max");
  state.set("factor", options_.factor);
  state.set("patience", options_.patience);
  state.set("threshold", options_.threshold);
  state.set(
      "threshold_mode",
      options_.threshold_mode == Options::ThresholdMode::rel ? "rel" : "abs");
  state.set("cooldown", options_.cooldown);
  set_reals(state, "min_lr", options_.min_lr);
  state.set("eps", options_.eps);
  return state;
}

io::StateDict ReduceLROnPlateau::state_dict() const {
  auto state = schedule_header(kKind, settings(), last_lr_.size());
  state.set("steps", progress_.steps);
  state.set("best", progress_.best);
  state.set("bad_steps", progress_.bad_steps);
  state.set("cooldown", progress_.cooldown);
  set_reals(state, "last_lr", last_lr_);
  return state;
}

void ReduceLROnPlateau::load_state_dict(const io::StateDict& state) {
  check_schedule_header(state, kKind, settings(), last_lr_.size());
  check_groups(kKind, *optimizer_, last_lr_.size());
  const Progress progress{
      .steps = state.integer("steps"),
      .best = state.real("best"),
      .bad_steps = state.integer("bad_steps"),
      .cooldown = state.integer("cooldown")};
  last_lr_ = reals(state, "last_lr", last_lr_.size());
  progress_ = progress;
  set_lrs(*optimizer_, last_lr_);
}

} // namespace ampkit::optim
