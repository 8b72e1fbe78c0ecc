#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fused_step.h>

#include "amp/bad_gradients.h"
#include "amp/flag.h"

namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ampkit {

/// A parameter's gradient and where its parameter stands in the optimizer.
struct Gradient {
  at::Tensor values; // the stored values, if the gradient is sparse
  at::Tensor parameter;
  size_t group = 0;
  size_t index = 0;
};

using GradientName = std::function<std::string(const Gradient&)>;

/// The defined gradients, each once, in the optimizer's order. Sparse fp16 ones
/// are coalesced first: what is added up must not overflow unseen.
std::vector<Gradient> defined_gradients(torch::optim::Optimizer& optimizer);

bool any_gradient(const torch::optim::Optimizer& optimizer);

size_t parameter_count(const torch::optim::Optimizer& optimizer);

/// Throws c10::Error, naming them by `name`, if gradients have a dtype whose
/// inf and NaN can't be found (FP8, complex).
void check_dtypes(torch::optim::Optimizer& optimizer, const GradientName& name);

/// The same for fp16 gradients, which unscaling in place would spoil.
void check_unscalable(
    const std::vector<Gradient>& gradients, const GradientName& name);

/// Whether any gradient holds inf or NaN, and which.
struct GradientCheck {
  Flag bad;
  BadGradients which;
};

/// Multiplies every gradient by `inv_scale` (fp32 []; undefined: 1) in place.
/// Bad is what is not finite before or after. Each device and dtype is one call
/// over all its tensors; none waits. On the CPU bad values are counted only
/// where there are any.
GradientCheck unscale_and_check_(
    const std::vector<Gradient>& gradients,
    const at::Tensor& inv_scale,
    const GradientName& name);

/// Total norm of the gradients as one vector, fp32 [] on `device`.
at::Tensor total_norm(
    const std::vector<Gradient>& gradients,
    c10::Device device,
    double norm_type);

/// Limits each element to [-clip_value, clip_value], in place.
void clamp_(const std::vector<Gradient>& gradients, double clip_value);

/// Clips rows by their weights, in place; sparse gradients are refused.
void clip_adaptively_(
    const std::vector<Gradient>& gradients, const AdaptiveClip& clip);

/// Multiplies every gradient by `factor` (fp32 []) in place.
void multiply_(
    const std::vector<Gradient>& gradients, const at::Tensor& factor);

/// torch.nn.utils.clip_grad_norm_'s factor for a total `norm` (fp32 []).
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

} // namespace ampkit
