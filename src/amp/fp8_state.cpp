#include "amp/fp8_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "amp/fp8_function.h"
#include "amp/fp8_matmul.h"
#include "amp/thread_autocast.h"
#include "amp/wrapped_or_traced.h"
#include "kernels/no_autocast.h"

namespace ampkit {
namespace {

std::string why_excluded(
    const std::string& name,
    const at::Tensor& parameter,
    const Fp8Options& options) {
  for (const std::string& filter : options.filter_fqns) {
    if (name.find(filter) != std::string::npos) {
      return "filter_fqns has '" + filter + "'";
    }
  }
  if (parameter.size(0) % kFp8Multiple != 0 ||
      parameter.size(1) % kFp8Multiple != 0) {
    return c10::str(
        "shape ", parameter.sizes(), " is not in multiples of ", kFp8Multiple);
  }
  if (parameter.is_inference() || parameter.layout() != at::kStrided) {
    return "it is an inference or a sparse tensor";
  }
  return "";
}

bool same_place(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

bool is_transpose(const at::Tensor& weight, const at::Tensor& parameter) {
  // A square weight may be both only if it is one element wide, which 16 isn't.
  return same_place(weight.t(), parameter);
}

bool can_multiply(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::ScalarType dtype) {
  const auto takes = [](const at::Tensor& tensor) {
    return tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
  };
  const bool bias_fits =
      !bias.has_value() || !bias->defined() ||
      (takes(*bias) && bias->dim() == 1 && weight.dim() == 2 &&
       bias->size(0) == weight.size(1) && bias->device() == weight.device());
  return bias_fits && takes(input) && takes(weight) && weight.dim() == 2 &&
         input.dim() >= 2 && input.numel() > 0 &&
         input.size(-1) == weight.size(0) &&
         input.device() == weight.device() &&
         (dtype == at::kBFloat16 || dtype == at::kHalf) &&
         !wrapped_or_traced(input) && !wrapped_or_traced(weight);
}

} // namespace

Fp8State::Fp8State(const NamedParameters& parameters, const Fp8Options& options)
    : options_(options),
      power_of_two_(options.round_scales_to_power_of_2.value_or(
          options.recipe == Fp8Recipe::row_wise)),
      gradient_dtype_(fp8_gradient_dtype(options)) {
  int64_t columns = 0;
  for (const auto& [name, parameter] : parameters) {
    const bool known = places_.contains(parameter.unsafeGetTensorImpl());
    if (parameter.dim() != 2 || !parameter.is_floating_point() || known) {
      continue;
    }
    places_.emplace(parameter.unsafeGetTensorImpl(), weights_.size());
    Fp8Weight& weight = weights_.emplace_back();
    weight.parameter = parameter;
    weight.name = name;
    weight.excluded = why_excluded(name, parameter, options);
    weight.column = weight.excluded.empty() ? columns++ : -1;
  }
  if (options.recipe == Fp8Recipe::delayed) {
    delayed_.emplace(columns, options);
  }
}

Fp8Weight* Fp8State::find(const at::Tensor& weight) {
  auto found = places_.find(weight.unsafeGetTensorImpl());
  if (found == places_.end() && weight.is_view()) {
    found = places_.find(weight._base().unsafeGetTensorImpl());
  }
  if (found != places_.end()) {
    return &weights_[found->second];
  }
  if (c10::InferenceMode::is_enabled()) {
    // Views know no base there.
    for (Fp8Weight& place : weights_) {
      if (place.parameter.storage().is_alias_of(weight.storage()) &&
          (same_place(place.parameter, weight) ||
           is_transpose(weight, place.parameter))) {
        return &place;
      }
    }
  }
  return nullptr;
}

at::Tensor Fp8State::product(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::ScalarType dtype) {
  if (!can_multiply(input, weight, bias, dtype)) {
    return {};
  }
  Fp8Weight* place = find(weight);
  if (place == nullptr || !place->excluded.empty() ||
      !(same_place(weight, place->parameter) ||
        is_transpose(weight, place->parameter))) {
    return {};
  }
  const NoAutocast no_autocast;
  place->products += thread_autocast().recomputing ? 0 : 1;
  return fp8_product(shared_from_this(), *place, input, weight, bias, dtype);
}

Fp8Tensor Fp8State::quantize(
    const at::Tensor& values,
    const Fp8Weight& weight,
    Fp8Role role,
    int64_t dim,
    bool record) {
  const at::NoGradGuard no_grad;
  const auto dtype =
      role == Fp8Role::gradient ? gradient_dtype_ : at::kFloat8_e4m3fn;
  if (delayed_.has_value()) {
    const auto [scale, inverse] =
        delayed_->scale(weight.column, role, values.device());
    if (record) {
      delayed_->record(weight.column, role, values.abs().max());
    }
    return {fp8_quantize(values, dtype, scale), inverse};
  }
  const auto amax =
      row_wise() ? values.abs().amax(dim, true) : values.abs().max();
  const auto scale = fp8_scale(amax, dtype, power_of_two_);
  return {fp8_quantize(values, dtype, scale), scale.reciprocal()};
}

Fp8Weight::Copy& Fp8State::copy_of(
    Fp8Weight& weight, const at::Tensor& values) {
  const bool transposed = is_transpose(values, weight.parameter);
  const auto version = static_cast<uint32_t>(weight.parameter._version());
  for (auto& copy : weight.copies) {
    if (copy.transposed == transposed) {
      const bool same_storage = copy.storage._unsafe_get_target() ==
                                values.storage().unsafeGetStorageImpl();
      if (copy.version == version && same_storage) {
        return copy;
      }
      std::swap(copy, weight.copies.back());
      weight.copies.pop_back();
      break;
    }
  }
  return weight.copies.emplace_back(Fp8Weight::Copy{
      .transposed = transposed,
      .version = version,
      // Weak: keeps the address from being used again, not the memory.
      .storage = values.storage().getWeakStorageImpl()});
}

std::pair<Fp8Tensor, Fp8Tensor> Fp8State::quantize_weight(
    Fp8Weight& weight,
    const at::Tensor& values,
    bool record,
    bool for_backward) {
  const at::NoGradGuard no_grad;
  // What an evaluation in inference mode leaves here, training must be able to
  // keep for backward.
  const c10::InferenceMode normal(false);
  const std::lock_guard lock(copies_mutex_);
  auto& copy = copy_of(weight, values);
  if (!copy.forward.defined()) {
    copy.forward = quantize(values, weight, Fp8Role::weight, 0, false);
    copy.amax = delayed_.has_value() ? values.abs().max() : at::Tensor();
  }
  if (record && delayed_.has_value() && !copy.recorded) {
    // Also when an evaluation, which records nothing, made the copy.
    delayed_->record(weight.column, Fp8Role::weight, copy.amax);
    copy.recorded = true;
  }
  if (for_backward && !copy.backward.defined()) {
    copy.backward = row_wise()
                        ? quantize(values, weight, Fp8Role::weight, 1, false)
                        : copy.forward;
  }
  return {copy.forward, for_backward ? copy.backward : Fp8Tensor()};
}

at::Tensor Fp8State::matmul(
    const Fp8Tensor& a,
    const Fp8Tensor& b,
    at::ScalarType dtype,
    bool fast) const {
  const at::NoGradGuard no_grad;
  return has_fp8_matmul(a.data.device(), options_, dtype)
             ? fp8_matmul_native(a, b, dtype, fast)
             : fp8_matmul_emulated(a, b, dtype);
}

void Fp8State::update() {
  if (delayed_.has_value()) {
    delayed_->update(options_.reduce_amax);
  }
  const std::lock_guard lock(copies_mutex_);
  for (Fp8Weight& weight : weights_) {
    weight.copies.clear();
  }
}

std::shared_ptr<LinearOverride> linear_override(const Fp8Linears& linears) {
  return linears.state_;
}

} // namespace ampkit
