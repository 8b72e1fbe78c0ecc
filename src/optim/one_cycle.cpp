#include <ampkit/optim/one_cycle.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
#include <ampkit/optim/muon.h>
#include <c10/util/Exception.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "optim/typed_rule.h"

namespace ampkit::optim {
namespace {

/// Of options that LibTorch has no type for.
template <class Options>
bool set_own_momentum(torch::optim::OptimizerOptions& options, double value) {
  auto* group = dynamic_cast<OwnGroup<Options>*>(&options);
  if (group == nullptr) {
    return false;
  }
  if constexpr (requires { group->values.betas; }) {
    group->values.betas.first = value;
  } else {
    group->values.momentum = value;
  }
  return true;
}

/// Sets momentum, or the first beta, of whatever torch::optim options these
/// are; those of most of ampkit's optimizers are too. False if they have
/// neither.
bool set_momentum(torch::optim::OptimizerOptions& options, double value) {
  if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options)) {
    adamw->betas({value, std::get<1>(adamw->betas())});
  } else if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options)) {
    adam->betas({value, std::get<1>(adam->betas())});
  } else if (auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) {
    sgd->momentum(value);
  } else if (
      auto* rmsprop = dynamic_cast<torch::optim::RMSpropOptions*>(&options)) {
    rmsprop->momentum(value);
  } else {
    return set_own_momentum<LionOptions>(options, value) ||
           set_own_momentum<LAMBOptions>(options, value) ||
           set_own_momentum<MuonOptions>(options, value);
  }
  return true;
}

void check_options(const OneCycleLROptions& o, size_t groups) {
  TORCH_CHECK_VALUE(
      o.max_lr.size() == 1 || o.max_lr.size() == groups,
      "OneCycleLR: max_lr must have 1 value or one for each of the ",
      groups,
      " parameter groups, got ",
      o.max_lr.size());
  for (const double value : o.max_lr) {
    TORCH_CHECK_VALUE(
        std::isfinite(value) && value > 0,
        "OneCycleLR: max_lr must be finite and > 0, got ",
        value);
  }
  TORCH_CHECK_VALUE(
      o.total_steps >= 2,
      "OneCycleLR: total_steps must be >= 2, got ",
      o.total_steps);
  TORCH_CHECK_VALUE(
      o.pct_start >= 0 && o.pct_start < 1 &&
          o.pct_start * static_cast<double>(o.total_steps) != 1,
      "OneCycleLR: pct_start must be in [0, 1) and, times total_steps, not be "
      "1, got ",
      o.pct_start);
  TORCH_CHECK_VALUE(
      o.div_factor > 0 && o.final_div_factor > 0,
      "OneCycleLR: div_factor and final_div_factor must be > 0, got ",
      o.div_factor,
      " and ",
      o.final_div_factor);
}

} // namespace

OneCycleLR::OneCycleLR(
    torch::optim::Optimizer& optimizer, const OneCycleLROptions& options)
    : LRScheduler(optimizer), options_(options) {
  auto& groups = optimizer.param_groups();
  check_options(options, groups.size());
  if (options_.max_lr.size() != groups.size()) {
    options_.max_lr.resize(groups.size(), options_.max_lr.front());
  }
  for (auto& group : groups) {
    TORCH_CHECK_VALUE(
        !options_.cycle_momentum || set_momentum(*group.options().clone(), 0),
        "OneCycleLR: the optimizer has neither momentum nor betas; set "
        "cycle_momentum to false");
  }
  begin();
}

OneCycleLR::Place OneCycleLR::place(int64_t step) const {
  const auto total = static_cast<double>(options_.total_steps);
  const double top = options_.pct_start * total - 1;
  std::vector<double> ends{top, total - 1};
  if (options_.three_phase) {
    ends = {top, 2 * options_.pct_start * total - 2, total - 1};
  }
  const auto now = static_cast<double>(step);
  size_t phase = 0;
  while (phase + 1 < ends.size() && now > ends[phase]) {
    ++phase;
  }
  const double start = phase == 0 ? 0.0 : ends[phase - 1];
  return {phase, (now - start) / (ends[phase] - start)};
}

double OneCycleLR::anneal(const Levels& levels, int64_t step) const {
  const Place where = place(step);
  const std::array<double, 4> points =
      options_.three_phase
          ? std::array{levels.start, levels.peak, levels.start, levels.end}
          : std::array{levels.start, levels.peak, levels.end, levels.end};
  const double from = points[where.phase];
  const double to = points[where.phase + 1];
  if (options_.cosine) {
    const double height = std::cos(std::numbers::pi * where.fraction) + 1;
    return to + (from - to) / 2.0 * height;
  }
  return (to - from) * where.fraction + from;
}

double OneCycleLR::rate(size_t g, int64_t step, double /*lr*/) const {
  const double peak = options_.max_lr[g];
  const double start = peak / options_.div_factor;
  return anneal({start, peak, start / options_.final_div_factor}, step);
}

void OneCycleLR::check_step(int64_t step) const {
  TORCH_CHECK_VALUE(
      step <= options_.total_steps,
      "OneCycleLR::step: there are ",
      options_.total_steps,
      " steps, got step ",
      step);
}

void OneCycleLR::apply_extras(int64_t step) {
  if (!options_.cycle_momentum) {
    return;
  }
  const Levels levels{
      options_.max_momentum, options_.base_momentum, options_.max_momentum};
  for (auto& group : optimizer().param_groups()) {
    set_momentum(group.options(), anneal(levels, step));
  }
}

io::StateDict OneCycleLR::settings() const {
  io::StateDict state;
  for (size_t g = 0; g < options_.max_lr.size(); ++g) {
    state.set("max_lr." + std::to_string(g), options_.max_lr[g]);
  }
  state.set("total_steps", options_.total_steps);
  state.set("pct_start", options_.pct_start);
  state.set("cosine", options_.cosine);
  state.set("cycle_momentum", options_.cycle_momentum);
  state.set("base_momentum", options_.base_momentum);
  state.set("max_momentum", options_.max_momentum);
  state.set("div_factor", options_.div_factor);
  state.set("final_div_factor", options_.final_div_factor);
  state.set("three_phase", options_.three_phase);
  return state;
}

} // namespace ampkit::optim
