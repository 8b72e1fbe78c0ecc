#include "amp/loss_scale.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "amp/host_value.h"

namespace ampkit {
namespace {

// In fp64 and then rounded, as LibTorch's kernels do.
float times(float scale, double factor) {
  return static_cast<float>(static_cast<double>(scale) * factor);
}

float grown(float scale, const GradScalerOptions& options) {
  const float larger = times(scale, options.growth_factor);
  return std::isfinite(larger)
             ? std::min(larger, static_cast<float>(options.max_scale))
             : scale;
}

float shrunk(float scale, const GradScalerOptions& options) {
  return std::max(
      times(scale, options.backoff_factor),
      static_cast<float>(options.min_scale));
}

at::Tensor times(const at::Tensor& scale, double factor) {
  return (scale.to(at::kDouble) * factor).to(at::kFloat);
}

} // namespace

LossScale::LossScale(const GradScalerOptions& options)
    : options_(options),
      state_{
          .scale = static_cast<float>(options.init_scale),
          .growth_tracker = 0,
          .hysteresis_tracker = options.hysteresis} {}

void LossScale::place(c10::Device device) {
  scale_ =
      at::full({}, state_.scale, at::TensorOptions(device).dtype(at::kFloat));
  on_device_ = !readable_now(scale_);
  set_state(state_);
}

void LossScale::set_state(const State& state) {
  state_ = state;
  if (!placed()) {
    return;
  }
  scale_ = at::full({}, state.scale, scale_.options());
  if (on_device_) {
    const auto integer = scale_.options().dtype(at::kLong);
    growth_tracker_ = at::full({}, state.growth_tracker, integer);
    hysteresis_tracker_ = at::full({}, state.hysteresis_tracker, integer);
  }
}

LossScale::State LossScale::state() const {
  if (!on_device_) {
    return state_;
  }
  return {
      .scale = scale_.item<float>(), // waits
      .growth_tracker = growth_tracker_.item<int64_t>(),
      .hysteresis_tracker = hysteresis_tracker_.item<int64_t>()};
}

void LossScale::load(const GradScalerOptions& options, const State& state) {
  options_ = options;
  set_state(state);
}

void LossScale::set(double scale) {
  if (on_device_) {
    scale_ = at::full({}, scale, scale_.options());
    return;
  }
  State next = state_;
  next.scale = static_cast<float>(scale);
  set_state(next);
}

LossScale::State LossScale::after(
    const State& state, bool overflow, const GradScalerOptions& options) {
  State next = state;
  if (overflow) {
    next.growth_tracker = 0;
    next.hysteresis_tracker =
        std::max<int64_t>(state.hysteresis_tracker - 1, 0);
    if (next.hysteresis_tracker == 0) {
      next.scale = shrunk(state.scale, options);
    }
    return next;
  }
  next.growth_tracker = state.growth_tracker + 1;
  const bool grows = next.growth_tracker >= options.growth_interval;
  if (grows) {
    next.growth_tracker = 0;
    next.scale = grown(state.scale, options);
  }
  if (grows || options.consecutive_hysteresis) {
    next.hysteresis_tracker = options.hysteresis;
  }
  return next;
}

void LossScale::update(const Flag& overflow, const Flag& hold) {
  if (on_device_) {
    const auto device = scale_.device();
    update_on_device(overflow.tensor(device), hold.tensor(device));
    return;
  }
  if (hold.read()) {
    return;
  }
  const State next = after(state_, overflow.read(), options_);
  const bool changes = next.scale != state_.scale;
  state_ = next;
  if (changes) {
    set_state(next);
  }
}

// after(), as tensors.
void LossScale::update_on_device(
    const at::Tensor& overflow, const at::Tensor& hold) {
  const auto clean = growth_tracker_ + 1;
  const auto grows =
      clean.ge(options_.growth_interval).logical_and(overflow.logical_not());
  const auto full = at::full_like(hysteresis_tracker_, options_.hysteresis);
  const auto left = at::where(
      overflow,
      (hysteresis_tracker_ - 1).clamp_min(0),
      options_.consecutive_hysteresis
          ? full
          : at::where(grows, full, hysteresis_tracker_));
  const auto shrinks = overflow.logical_and(left.eq(0));
  const auto larger = times(scale_, options_.growth_factor);
  const auto grown_scale = at::where(
      larger.isfinite(), larger.clamp_max(options_.max_scale), scale_);
  const auto shrunk_scale =
      times(scale_, options_.backoff_factor).clamp_min(options_.min_scale);
  const auto scale =
      at::where(shrinks, shrunk_scale, at::where(grows, grown_scale, scale_));
  const auto tracker = clean.masked_fill(overflow.logical_or(grows), 0);
  scale_ = at::where(hold, scale_, scale);
  growth_tracker_ = at::where(hold, growth_tracker_, tracker);
  hysteresis_tracker_ = at::where(hold, hysteresis_tracker_, left);
}

} // namespace ampkit
