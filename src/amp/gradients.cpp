#include "amp/gradients.h"

#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

namespace ampkit {
namespace {

using Key = std::pair<std::string, at::ScalarType>; // device, dtype

std::map<Key, std::vector<at::Tensor>> by_device_and_dtype(
    const std::vector<Gradient>& gradients) {
  std::map<Key, std::vector<at::Tensor>> groups;
  for (const Gradient& gradient : gradients) {
    const at::Tensor& values = gradient.values;
    groups[{values.device().str(), values.scalar_type()}].push_back(values);
  }
  return groups;
}

at::Tensor values_of(at::Tensor& grad) {
  if (!grad.is_sparse()) {
    return grad;
  }
  if (grad.scalar_type() == at::kHalf) {
    grad = grad.coalesce();
  }
  return grad._values();
}

// LibTorch's check-and-unscale kernel has no bf16 on some devices; the largest
// magnitude says as well whether all are finite.
void unscale_bf16_(
    std::vector<at::Tensor>& grads,
    const at::Tensor& inv_scale,
    at::Tensor& found_inf) {
  const auto peaks =
      at::_foreach_norm(grads, std::numeric_limits<double>::infinity());
  found_inf.add_(at::stack(peaks).isfinite().all().logical_not().to(
      found_inf.device(), at::kFloat));
  at::_foreach_mul_(grads, inv_scale);
}

} // namespace

std::vector<Gradient> defined_gradients(torch::optim::Optimizer& optimizer) {
  std::vector<Gradient> gradients;
  // module.parameters() lists a tied parameter once for each of its names.
  std::unordered_set<const c10::TensorImpl*> seen;
  for (size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    auto& parameters = optimizer.param_groups()[g].params();
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& grad = parameters[i].mutable_grad();
      if (grad.defined() && seen.insert(grad.unsafeGetTensorImpl()).second) {
        gradients.push_back({values_of(grad), parameters[i], g, i});
      }
    }
  }
  return gradients;
}

bool any_gradient(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) {
        return true;
      }
    }
  }
  return false;
}

size_t parameter_count(const torch::optim::Optimizer& optimizer) {
  size_t count = 0;
  for (const auto& group : optimizer.param_groups()) {
    count += group.params().size();
  }
  return count;
}

void unscale_and_check_(
    const std::vector<Gradient>& gradients,
    const at::Tensor& inv_scale,
    at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  for (auto& [key, grads] : by_device_and_dtype(gradients)) {
    const auto device = grads.front().device();
    const auto local_inv_scale = inv_scale.to(device);
    if (key.second == at::kBFloat16) {
      unscale_bf16_(grads, local_inv_scale, found_inf);
      continue;
    }
    auto local_found = at::zeros({}, inv_scale.options().device(device));
    at::_amp_foreach_non_finite_check_and_unscale_(
        grads, local_found, local_inv_scale);
    // Once more, now that they are unscaled: a scale below 1 makes them larger.
    at::_amp_foreach_non_finite_check_and_unscale_(
        grads, local_found, at::ones_like(local_inv_scale));
    found_inf.add_(local_found.to(found_inf.device()));
  }
}

at::Tensor total_norm(
    const std::vector<Gradient>& gradients, c10::Device device) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (auto& [key, grads] : by_device_and_dtype(gradients)) {
    for (const at::Tensor& norm : at::_foreach_norm(grads, 2)) {
      norms.push_back(norm.to(device, at::kFloat));
    }
  }
  return at::linalg_vector_norm(at::stack(norms), 2);
}

void multiply_(
    const std::vector<Gradient>& gradients, const at::Tensor& factor) {
  const at::NoGradGuard no_grad;
  for (auto& [key, grads] : by_device_and_dtype(gradients)) {
    at::_foreach_mul_(grads, factor.to(grads.front().device()));
  }
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  // 1e-6 is PyTorch's; an infinite max_norm must give 1 for any finite norm.
  return (max_norm / (norm + 1e-6)).clamp_max(1.0).to(at::kFloat);
}

} // namespace ampkit
