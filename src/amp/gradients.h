#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

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

/// The defined gradients, each once, in the optimizer's order. Sparse fp16 ones
/// are coalesced first: what is added up must not overflow unseen.
std::vector<Gradient> defined_gradients(torch::optim::Optimizer& optimizer);

bool any_gradient(const torch::optim::Optimizer& optimizer);

size_t parameter_count(const torch::optim::Optimizer& optimizer);

/// Multiplies every gradient by `inv_scale` (fp32 []) in place and raises
/// `found_inf` (fp32 []) above 0 if any element is not finite, before or after.
/// Each device and dtype is one call over all its tensors; none waits.
void unscale_and_check_(
    const std::vector<Gradient>& gradients,
    const at::Tensor& inv_scale,
    at::Tensor& found_inf);

/// Total 2-norm of the gradients, fp32 [] on `device`.
at::Tensor total_norm(
    const std::vector<Gradient>& gradients, c10::Device device);

/// Multiplies every gradient by `factor` (fp32 []) in place.
void multiply_(
    const std::vector<Gradient>& gradients, const at::Tensor& factor);

/// torch.nn.utils.clip_grad_norm_'s factor for a total `norm` (fp32 []).
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

} // namespace ampkit
