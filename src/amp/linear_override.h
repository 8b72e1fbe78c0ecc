#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace ampkit {

/// Takes over products of an activation with a weight inside an autocast
/// region.
class LinearOverride {
 public:
  virtual ~LinearOverride() = default;

  /// `input` [..., in] @ `weight` [in, out] (+ `bias` [out]), in the 16-bit
  /// `dtype` of the region; `weight` is usually `parameter.t()`. An undefined
  /// result: not taken, do as usual.
  virtual at::Tensor product(
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      at::ScalarType dtype) = 0;
};

} // namespace ampkit
