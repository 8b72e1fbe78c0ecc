#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <torch/torch.h>

namespace ampkit::dist {

/// Linear, BatchNorm (if wanted), ReLU, Linear, and a layer that forward() uses
/// on request only. Always the same weights.
struct SmallNetImpl : torch::nn::Module {
  explicit SmallNetImpl(bool with_norm = false, bool with_extra = false) {
    first = register_module("first", torch::nn::Linear(8, 16));
    if (with_norm) {
      norm = register_module("norm", torch::nn::BatchNorm1d(16));
    }
    second = register_module("second", torch::nn::Linear(16, 4));
    if (with_extra) {
      extra = register_module("extra", torch::nn::Linear(16, 4));
    }
    const at::NoGradGuard no_grad;
    double step = 0.37;
    for (auto& parameter : parameters()) {
      const auto values = at::sin(at::arange(parameter.numel()) * step) * 0.3;
      parameter.copy_(values.view(parameter.sizes()));
      step += 0.37;
    }
  }

  at::Tensor forward(const at::Tensor& input, bool use_extra = false) {
    auto hidden = first(input);
    hidden = at::relu(norm ? norm(hidden) : hidden);
    const auto output = second(hidden);
    return use_extra ? output + extra(hidden) : output;
  }

  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
  torch::nn::Linear extra{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(SmallNet);

/// Encoder and decoder have one weight, under two names.
struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    const auto values = at::sin(at::arange(64) * 0.7).view({8, 8}) * 0.3;
    encoder = register_parameter("encoder", values.to(at::kFloat));
    decoder = register_parameter("decoder", encoder);
  }

  at::Tensor forward(const at::Tensor& input) {
    return at::linear(at::tanh(at::linear(input, encoder)), decoder);
  }

  at::Tensor encoder;
  at::Tensor decoder;
};
TORCH_MODULE(TiedNet);

inline std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) {
    result.push_back(tensor.detach().clone());
  }
  return result;
}

/// Clones; an undefined gradient stays undefined.
inline std::vector<at::Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : module.parameters()) {
    const auto& gradient = parameter.grad();
    result.push_back(gradient.defined() ? gradient.clone() : at::Tensor());
  }
  return result;
}

/// The largest difference of any two values; infinity if one is missing.
inline double difference(
    const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].defined() != b[i].defined()) {
      return INFINITY;
    }
    if (a[i].defined()) {
      largest = std::max(
          largest, (a[i] - b[i]).abs().max().to(at::kDouble).item<double>());
    }
  }
  return largest;
}

} // namespace ampkit::dist
