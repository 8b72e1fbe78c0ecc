#include "amp/gradients.h"

#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include "amp/adaptive_clip.h"

#include "amp/host_value.h"

namespace ampkit {
namespace {

using Key = std::pair<std::string, at::ScalarType>; // device, dtype

// Without the empty ones, of which there is no norm.
std::map<Key, std::vector<const Gradient*>> by_device_and_dtype(
    const std::vector<Gradient>& gradients) {
  std::map<Key, std::vector<const Gradient*>> groups;
  for (const Gradient& gradient : gradients) {
    const at::Tensor& values = gradient.values;
    if (values.numel() > 0) {
      groups[{values.device().str(), values.scalar_type()}].push_back(
          &gradient);
    }
  }
  return groups;
}

std::vector<at::Tensor> values_of(const std::vector<const Gradient*>& group) {
  std::vector<at::Tensor> values;
  values.reserve(group.size());
  for (const Gradient* gradient : group) {
    values.push_back(gradient->values);
  }
  return values;
}

BadGradients named(
    const at::Tensor& counts,
    const std::vector<const Gradient*>& group,
    const GradientName& name) {
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  for (const Gradient* gradient : group) {
    names.push_back(name(*gradient));
    sizes.push_back(gradient->values.numel());
  }
  return {counts, std::move(names), std::move(sizes)};
}

at::Tensor stored_values(at::Tensor& grad) {
  if (!grad.is_sparse()) {
    return grad;
  }
  if (grad.scalar_type() == at::kHalf) {
    grad = grad.coalesce();
  }
  return grad._values();
}

bool has_finite_check(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf ||
         type == at::kBFloat16;
}

/// "'a' (Half [2, 2]), 'b' (Half [2]) and 3 more": those that `is_wrong`.
std::string listed(
    const std::vector<Gradient>& gradients,
    const GradientName& name,
    const std::function<bool(at::ScalarType)>& is_wrong) {
  constexpr int kListed = 4;
  std::string text;
  int count = 0;
  for (const Gradient& g : gradients) {
    if (is_wrong(g.values.scalar_type()) && ++count <= kListed) {
      text += c10::str(
          count > 1 ? ", '" : "'",
          name(g),
          "' (",
          g.values.scalar_type(),
          " ",
          g.parameter.sizes(),
          ")");
    }
  }
  return count > kListed ? c10::str(text, " and ", count - kListed, " more")
                         : text;
}

Flag unscale_on_cpu_(
    const std::vector<at::Tensor>& grads, const at::Tensor& inv_scale) {
  auto found = at::zeros({});
  if (inv_scale.defined()) {
    at::_amp_foreach_non_finite_check_and_unscale_(
        grads, found, inv_scale.to(at::kCPU));
  }
  // Once more, now that they are unscaled: a scale below 1 makes them larger.
  at::_amp_foreach_non_finite_check_and_unscale_(grads, found, at::ones({}));
  return Flag(found.ne(0));
}

at::Tensor counts_of(const std::vector<at::Tensor>& grads) {
  std::vector<float> counts;
  for (const at::Tensor& grad : grads) {
    counts.push_back(
        grad.isfinite().logical_not().sum().to(at::kFloat).item<float>());
  }
  return at::tensor(counts);
}

// On other devices LibTorch's kernel says no more than that there is one, and
// has no bf16 on some. The largest magnitude of each says which, and as it is
// that of the unscaled ones, a second look is not needed.
at::Tensor unscale_on_device_(
    const std::vector<at::Tensor>& grads, const at::Tensor& inv_scale) {
  if (inv_scale.defined()) {
    at::_foreach_mul_(grads, inv_scale.to(grads.front().device()));
  }
  const auto peaks =
      at::_foreach_norm(grads, std::numeric_limits<double>::infinity());
  return at::stack(peaks).isfinite().logical_not().to(at::kFloat);
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
        gradients.push_back({stored_values(grad), parameters[i], g, i});
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

void check_dtypes(
    torch::optim::Optimizer& optimizer, const GradientName& name) {
  bool all_checked = true;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& grad = parameter.grad();
      all_checked = all_checked &&
                    (!grad.defined() || has_finite_check(grad.scalar_type()));
    }
  }
  TORCH_CHECK(
      all_checked,
      "GradScaler: gradients must be Float, Double, Half or BFloat16, got ",
      listed(
          defined_gradients(optimizer),
          name,
          [](at::ScalarType type) { return !has_finite_check(type); }),
      "; in other dtypes inf and NaN can't be found");
}

void check_unscalable(
    const std::vector<Gradient>& gradients, const GradientName& name) {
  const auto wrong = listed(
      gradients, name, [](at::ScalarType type) { return type == at::kHalf; });
  TORCH_CHECK(
      wrong.empty(),
      "GradScaler: the gradients of ",
      wrong,
      " can't be unscaled in place, since small values would be lost; keep "
      "FP32 parameters, or use an optimizer of ampkit::optim, which keeps "
      "FP32 masters, and let step() unscale");
}

GradientCheck unscale_and_check_(
    const std::vector<Gradient>& gradients,
    const at::Tensor& inv_scale,
    const GradientName& name) {
  const at::NoGradGuard no_grad;
  GradientCheck check;
  for (const auto& [key, group] : by_device_and_dtype(gradients)) {
    const auto grads = values_of(group);
    at::Tensor counts;
    if (readable_now(grads.front())) {
      const Flag bad = unscale_on_cpu_(grads, inv_scale);
      check.bad = check.bad | bad;
      counts = bad.read() ? counts_of(grads) : at::Tensor();
    } else {
      counts = unscale_on_device_(grads, inv_scale);
      check.bad = check.bad | Flag(counts.any());
    }
    if (counts.defined()) {
      check.which.append(named(counts, group, name));
    }
  }
  return check;
}

at::Tensor total_norm(
    const std::vector<Gradient>& gradients,
    c10::Device device,
    double norm_type) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const auto& [key, group] : by_device_and_dtype(gradients)) {
    for (const at::Tensor& norm :
         at::_foreach_norm(values_of(group), norm_type)) {
      norms.push_back(norm.to(device, at::kFloat));
    }
  }
  return norms.empty()
             ? at::zeros({}, at::TensorOptions(device).dtype(at::kFloat))
             : at::linalg_vector_norm(at::stack(norms), norm_type);
}

void clamp_(const std::vector<Gradient>& gradients, double clip_value) {
  const at::NoGradGuard no_grad;
  for (const Gradient& gradient : gradients) {
    gradient.values.clamp_(-clip_value, clip_value);
  }
}

void clip_adaptively_(
    const std::vector<Gradient>& gradients, const AdaptiveClip& clip) {
  const at::NoGradGuard no_grad;
  for (const Gradient& gradient : gradients) {
    TORCH_CHECK(
        gradient.values.sizes() == gradient.parameter.sizes(),
        "GradScaler::step: adaptive_clip needs dense gradients, got a sparse "
        "one of parameter ",
        gradient.index,
        " of group ",
        gradient.group);
    const bool narrow = gradient.values.element_size() < 4;
    gradient.values.copy_(clipped_adaptively(
        narrow ? gradient.values.to(at::kFloat) : gradient.values,
        gradient.parameter.detach(),
        clip));
  }
}

void multiply_(
    const std::vector<Gradient>& gradients, const at::Tensor& factor) {
  const at::NoGradGuard no_grad;
  for (const auto& [key, group] : by_device_and_dtype(gradients)) {
    at::_foreach_mul_(
        values_of(group), factor.to(group.front()->values.device()));
  }
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  // 1e-6 is PyTorch's; an infinite max_norm must give 1 for any finite norm.
  return (max_norm / (norm + 1e-6)).clamp_max(1.0).to(at::kFloat);
}

} // namespace ampkit
