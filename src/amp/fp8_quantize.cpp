#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "amp/fp8_tensor.h"

namespace ampkit {
namespace {

// torchao's EPS: keeps the scale of an all-zero tensor finite.
constexpr double kSmallestAmax = 1e-12;

void check_dtype(at::ScalarType dtype, const char* who) {
  TORCH_CHECK_VALUE(
      dtype == at::kFloat8_e4m3fn || dtype == at::kFloat8_e5m2,
      who,
      ": dtype must be Float8_e4m3fn or Float8_e5m2, got ",
      dtype);
}

} // namespace

double fp8_max(at::ScalarType dtype) {
  return dtype == at::kFloat8_e4m3fn ? 448.0 : 57344.0;
}

at::ScalarType fp8_gradient_dtype(const Fp8Options& options) {
  const auto format = options.fp8_format.value_or(
      options.recipe == Fp8Recipe::row_wise ? Fp8Format::e4m3
                                            : Fp8Format::hybrid);
  return format == Fp8Format::hybrid ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
}

at::Tensor fp8_scale(
    const at::Tensor& amax, at::ScalarType dtype, bool round_to_power_of_2) {
  check_dtype(dtype, "fp8_scale");
  const at::NoGradGuard no_grad;
  const at::Tensor wide = amax.to(at::kDouble);
  auto scale =
      (fp8_max(dtype) / at::clamp_min(wide, kSmallestAmax)).to(at::kFloat);
  if (round_to_power_of_2) {
    // The exponent alone.
    constexpr int64_t kExponent = 0x7f800000;
    scale = at::bitwise_and(scale.view(at::kInt), kExponent).view(at::kFloat);
  }
  return at::where(at::isfinite(wide), scale, 1.0);
}

at::Tensor fp8_quantize(
    const at::Tensor& tensor, at::ScalarType dtype, const at::Tensor& scale) {
  check_dtype(dtype, "fp8_quantize");
  TORCH_CHECK_VALUE(
      tensor.is_floating_point() && scale.scalar_type() == at::kFloat,
      "fp8_quantize: needs a floating-point tensor and a Float scale, got ",
      tensor.scalar_type(),
      " and ",
      scale.scalar_type());
  const at::NoGradGuard no_grad;
  const double limit = fp8_max(dtype);
  const at::Tensor values = tensor.to(at::kFloat);
  // Of FP64, more is finite than FP32 can say.
  const at::Tensor is_inf =
      (tensor.scalar_type() == at::kDouble ? tensor : values).isinf();
  auto scaled = (values * scale).clamp_(-limit, limit);
  // Looked for before scaling: a finite value that the scale carries beyond
  // FP32 saturates like any other.
  scaled = dtype == at::kFloat8_e5m2
               ? at::where(is_inf, values, scaled)
               : scaled.masked_fill_(
                     is_inf, std::numeric_limits<double>::quiet_NaN());
  return scaled.to(dtype);
}

} // namespace ampkit
