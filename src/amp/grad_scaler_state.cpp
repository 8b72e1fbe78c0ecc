// GradScaler: saving and loading.

#include <algorithm>
#include <cmath>

#include <c10/util/Exception.h>

#include "amp/grad_scaler_impl.h"

namespace ampkit {
namespace {

void set_counts(io::StateDict& state, const SkipCounter::Counts& counts) {
  state.set("_steps", counts.steps);
  state.set("_skipped", counts.skipped);
  state.set("_faults", counts.faults);
  state.set("_skips_in_a_row", counts.skips_in_a_row);
  state.set("_faults_in_a_row", counts.faults_in_a_row);
}

int64_t count_of(const io::StateDict& state, const std::string& name) {
  const int64_t value = state.integer(name);
  TORCH_CHECK_VALUE(
      value >= 0,
      "GradScaler::load_state_dict: ",
      name,
      " must be >= 0, got ",
      value);
  return value;
}

/// Of an entry that torch.amp.GradScaler does not have.
int64_t count_of(
    const io::StateDict& state, const std::string& name, int64_t missing) {
  return state.contains(name) ? count_of(state, name) : missing;
}

SkipCounter::Counts counts_of(const io::StateDict& state) {
  return {
      .steps = count_of(state, "_steps", 0),
      .skipped = count_of(state, "_skipped", 0),
      .faults = count_of(state, "_faults", 0),
      .skips_in_a_row = count_of(state, "_skips_in_a_row", 0),
      .faults_in_a_row = count_of(state, "_faults_in_a_row", 0)};
}

/// `options` with what the state says of them.
GradScalerOptions options_of(
    const io::StateDict& state, const GradScalerOptions& options) {
  GradScalerOptions checked;
  checked.growth_factor = state.real("growth_factor");
  checked.backoff_factor = state.real("backoff_factor");
  checked.growth_interval = state.integer("growth_interval");
  checked.check();
  GradScalerOptions loaded = options;
  loaded.growth_factor = checked.growth_factor;
  loaded.backoff_factor = checked.backoff_factor;
  loaded.growth_interval = checked.growth_interval;
  return loaded;
}

double scale_of(const io::StateDict& state, const GradScalerOptions& options) {
  const double scale = state.real("scale");
  TORCH_CHECK_VALUE(
      std::isfinite(scale) && scale > 0,
      "GradScaler::load_state_dict: scale must be finite and > 0, got ",
      scale);
  return std::clamp(scale, options.min_scale, options.max_scale);
}

LossScale::State scale_state_of(
    const io::StateDict& state, const GradScalerOptions& options) {
  return {
      .scale = static_cast<float>(scale_of(state, options)),
      .growth_tracker = count_of(state, "_growth_tracker"),
      .hysteresis_tracker = std::min(
          count_of(state, "_hysteresis_tracker", options.hysteresis),
          options.hysteresis)};
}

} // namespace

io::StateDict GradScaler::state_dict() const {
  io::StateDict state;
  const auto& options = impl_->options;
  if (options.enabled) {
    const auto scale = impl_->scale.state();
    state.set("scale", static_cast<double>(scale.scale));
    state.set("growth_factor", options.growth_factor);
    state.set("backoff_factor", options.backoff_factor);
    state.set("growth_interval", options.growth_interval);
    state.set("_growth_tracker", scale.growth_tracker);
    if (!options.torch_exact) {
      state.set("_hysteresis_tracker", scale.hysteresis_tracker);
    }
  }
  if (impl_->checks() && !options.torch_exact) {
    set_counts(state, impl_->counter.read());
  }
  return state;
}

void GradScaler::load_state_dict(const io::StateDict& state) {
  if (!impl_->checks()) {
    return;
  }
  TORCH_CHECK(
      !state.empty(),
      "GradScaler::load_state_dict: the state is empty, as that of a disabled "
      "scaler is");
  const auto counts = counts_of(state);
  if (impl_->options.enabled) {
    TORCH_CHECK(
        state.contains("scale"),
        "GradScaler::load_state_dict: the state has no entry scale, as that of "
        "a scaler that checks without scaling");
    const auto options = options_of(state, impl_->options);
    const auto scale = scale_state_of(state, options);
    impl_->options = options;
    impl_->scale.load(options, scale);
  }
  impl_->counter.load(counts);
  impl_->counted_facts.clear();
  abandon();
}

} // namespace ampkit
