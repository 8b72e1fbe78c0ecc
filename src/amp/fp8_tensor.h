#pragma once

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fp8.h>

namespace ampkit {

/// What has a scale of its own in each layer; the order of the saved columns.
enum class Fp8Role { input, weight, gradient };
constexpr int64_t kFp8Roles = 3;

/// FP8 values together with what they are multiplied by to get back: the two
/// are never apart, so that no product can use the scale of another step.
struct Fp8Tensor {
  at::Tensor data; // [rows, columns]
  at::Tensor inverse; // fp32 [], [rows, 1] or [1, columns]

  bool defined() const { return data.defined(); }
  Fp8Tensor t() const {
    return {data.t(), inverse.dim() == 2 ? inverse.t() : inverse};
  }
};

/// The largest finite value of Float8_e4m3fn or Float8_e5m2.
double fp8_max(at::ScalarType dtype);

/// The dtype of gradients: what the options say, or the recipe's default.
at::ScalarType fp8_gradient_dtype(const Fp8Options& options);

} // namespace ampkit
