#pragma once

#include <string>
#include <vector>

#include <ampkit/amp/fp8.h>
#include <torch/torch.h>

namespace ampkit {

inline torch::Tensor bytes(const torch::Tensor& tensor) {
  return tensor.contiguous().view(torch::kByte);
}

inline bool equal_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && bytes(a).equal(bytes(b));
}

/// The saved columns of the amax history, scale and inverse.
enum : int64_t { kInputColumn = 0, kWeightColumn = 1, kGradientColumn = 2 };

/// A layer [32 -> 16] with bias and an input [4, 32], all seeded.
struct OneLayer {
  explicit OneLayer(const Fp8Options& options) : fp8({weight}, options) {}

  torch::Tensor forward() { return fp8.linear(input, weight, bias); }
  /// One micro-batch; the gradient of the output is `gradient`.
  torch::Tensor train(const torch::Tensor& gradient) {
    const auto output = forward();
    output.backward(gradient.to(output.scalar_type()));
    return output.detach();
  }
  torch::Tensor train() { return train(torch::ones({4, 16})); }

  static torch::Tensor seeded(at::IntArrayRef shape) {
    return torch::randn(shape, at::make_generator<at::CPUGeneratorImpl>(5));
  }

  torch::Tensor weight = seeded({16, 32}).requires_grad_();
  torch::Tensor bias = seeded({16}).requires_grad_();
  torch::Tensor input = seeded({4, 32}).requires_grad_();
  Fp8Linears fp8;
};

} // namespace ampkit
