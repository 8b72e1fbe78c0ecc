#include "amp/fp8_delayed_scales.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

namespace ampkit {
namespace {

int64_t column(int64_t layer, Fp8Role role) {
  return layer * kFp8Roles + static_cast<int64_t>(role);
}

// The step's amaxes become the latest of the past, and place 0 is free.
at::Tensor rolled(const at::Tensor& history) {
  auto result = history.roll(-1, 0);
  result.select(0, 0).zero_();
  return result;
}

} // namespace

Fp8DelayedScales::Fp8DelayedScales(int64_t layers, const Fp8Options& options)
    : algorithm_(options.amax_compute_algo),
      margin_(static_cast<double>(options.margin)),
      history_(at::zeros(
          {options.amax_history_len, layers * kFp8Roles}, at::kFloat)),
      scale_(at::ones({layers * kFp8Roles}, at::kFloat)),
      inverse_(at::ones({layers * kFp8Roles}, at::kFloat)) {
  const double forward = fp8_max(at::kFloat8_e4m3fn);
  fp8_max_ = at::full({layers, kFp8Roles}, forward, at::kFloat);
  fp8_max_.select(1, static_cast<int64_t>(Fp8Role::gradient))
      .fill_(fp8_max(fp8_gradient_dtype(options)));
  fp8_max_ = fp8_max_.flatten();
}

void Fp8DelayedScales::settle_on(c10::Device device) {
  if (!settled_) {
    const c10::InferenceMode normal(false);
    for (at::Tensor* tensor : {&history_, &scale_, &inverse_, &fp8_max_}) {
      *tensor = tensor->to(device);
    }
    settled_ = true;
  }
}

std::pair<at::Tensor, at::Tensor> Fp8DelayedScales::scale(
    int64_t layer, Fp8Role role, c10::Device device) {
  const std::lock_guard lock(mutex_);
  settle_on(device);
  const int64_t place = column(layer, role);
  return {scale_[place].to(device), inverse_[place].to(device)};
}

void Fp8DelayedScales::record(
    int64_t layer, Fp8Role role, const at::Tensor& amax) {
  const std::lock_guard lock(mutex_);
  const at::Tensor seen = history_[0][column(layer, role)];
  // Not amax's own maximum: that of both keeps a NaN whichever comes first.
  seen.copy_(at::maximum(seen, amax.to(seen.options())));
}

void Fp8DelayedScales::update(
    const std::function<void(at::Tensor&)>& reduce_amax) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode normal(false);
  const std::lock_guard lock(mutex_);
  auto latest = history_[0].clone();
  if (reduce_amax) {
    reduce_amax(latest);
    TORCH_CHECK(
        latest.sizes() == scale_.sizes(),
        "Fp8Linears::update: reduce_amax must keep the shape ",
        scale_.sizes(),
        ", it made ",
        latest.sizes());
  }
  const at::Tensor usable = latest.isfinite();
  history_[0].copy_(at::where(usable, latest, 0.0));
  const at::Tensor amax = algorithm_ == Fp8AmaxAlgorithm::max
                              ? std::get<0>(history_.max(0))
                              : history_[0].clone();
  auto scale = (fp8_max_ / amax) / std::exp2(margin_);
  // An amax too small for its scale to be a FP32 number.
  scale.masked_fill_(scale.isinf(), std::numeric_limits<float>::max());
  scale_ = at::where(amax > 0, scale, scale_);
  inverse_ = scale_.reciprocal();
  history_ = rolled(history_);
}

Fp8DelayedScales::Part Fp8DelayedScales::part(int64_t layer) const {
  const std::lock_guard lock(mutex_);
  const int64_t first = layer * kFp8Roles;
  return {
      .history = history_.narrow(1, first, kFp8Roles).clone().contiguous(),
      .scale = scale_.narrow(0, first, kFp8Roles).clone(),
      .inverse = inverse_.narrow(0, first, kFp8Roles).clone()};
}

void Fp8DelayedScales::set_part(int64_t layer, const Part& part) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode normal(false);
  const std::lock_guard lock(mutex_);
  const int64_t first = layer * kFp8Roles;
  history_.narrow(1, first, kFp8Roles).copy_(part.history);
  scale_ = scale_.clone();
  scale_.narrow(0, first, kFp8Roles).copy_(part.scale);
  inverse_ = inverse_.clone();
  inverse_.narrow(0, first, kFp8Roles).copy_(part.inverse);
}

} // namespace ampkit
