#include <ampkit/optim/clip.h>

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "amp/adaptive_clip.h"
#include "amp/scaled_gradients.h"

namespace ampkit::optim {
namespace {

std::vector<at::Tensor> gradients_of(
    const std::vector<at::Tensor>& parameters, const char* who) {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& grad = parameters[i].grad();
    if (!grad.defined()) {
      continue;
    }
    TORCH_CHECK(
        grad.layout() == at::kStrided,
        who,
        ": the gradient of parameter ",
        i,
        " must be dense, got layout ",
        grad.layout());
    TORCH_CHECK(
        !ScaledGradients::has(parameters[i]),
        who,
        ": the gradient of parameter ",
        i,
        " is still multiplied by a loss scale; call GradScaler::unscale_("
        "optimizer) first, or let GradScaler::step() clip (StepOptions)");
    gradients.push_back(grad);
  }
  return gradients;
}

at::ScalarType sum_type(const at::Tensor& grad) {
  return grad.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor total_norm(
    const std::vector<at::Tensor>& gradients, double norm_type) {
  const c10::Device device = gradients.front().device();
  std::vector<at::Tensor> norms;
  for (const at::Tensor& grad : gradients) {
    // In fp64 from here on: a sum of squares of fp32 norms can overflow.
    norms.push_back(
        at::linalg_vector_norm(grad, norm_type, {}, false, sum_type(grad))
            .to(device, device.is_cpu() ? at::kDouble : at::kFloat));
  }
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

void scale_(const at::Tensor& grad, const at::Tensor& factor) {
  const auto local = factor.to(grad.device(), sum_type(grad));
  if (grad.scalar_type() == sum_type(grad)) {
    grad.mul_(local);
  } else {
    // In 16 bits the factor itself would be rounded, or vanish.
    grad.copy_(grad.to(at::kFloat).mul_(local));
  }
}

void check_finite(const at::Tensor& norm) {
  const double value = norm.item<double>(); // waits for the device
  TORCH_CHECK(
      std::isfinite(value),
      "clip_grad_norm_: the total norm is ",
      value,
      "; the gradients were left as they are");
}

} // namespace

at::Tensor clip_grad_norm_(
    const std::vector<at::Tensor>& parameters,
    double max_norm,
    const ClipGradNormOptions& options) {
  TORCH_CHECK_VALUE(
      max_norm > 0, "clip_grad_norm_: max_norm must be > 0, got ", max_norm);
  TORCH_CHECK_VALUE(
      options.norm_type > 0,
      "clip_grad_norm_: norm_type must be > 0, got ",
      options.norm_type);
  const at::NoGradGuard no_grad;
  const auto gradients = gradients_of(parameters, "clip_grad_norm_");
  if (gradients.empty()) {
    return at::zeros({});
  }
  const auto norm = total_norm(gradients, options.norm_type);
  if (options.error_if_nonfinite) {
    check_finite(norm);
  }
  // 1e-6 is PyTorch's.
  const auto factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  const auto used = at::where(norm.isfinite(), factor, at::ones_like(factor));
  for (const at::Tensor& grad : gradients) {
    scale_(grad, used);
  }
  return norm.to(sum_type(gradients.front()));
}

void clip_grad_value_(
    const std::vector<at::Tensor>& parameters, double clip_value) {
  TORCH_CHECK_VALUE(
      clip_value > 0,
      "clip_grad_value_: clip_value must be > 0, got ",
      clip_value);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& grad : gradients_of(parameters, "clip_grad_value_")) {
    grad.clamp_(-clip_value, clip_value);
  }
}

void adaptive_clip_grad_(
    const std::vector<at::Tensor>& parameters, const AdaptiveClip& clip) {
  check_adaptive_clip(clip, "adaptive_clip_grad_");
  const at::NoGradGuard no_grad;
  gradients_of(parameters, "adaptive_clip_grad_"); // throws before any change
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& grad = parameter.grad();
    if (grad.defined()) {
      grad.copy_(clipped_adaptively(
          grad.to(sum_type(grad)), parameter.detach(), clip));
    }
  }
}

} // namespace ampkit::optim
