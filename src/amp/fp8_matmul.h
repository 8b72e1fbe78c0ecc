#pragma once

#include <ATen/core/Tensor.h>

#include "amp/fp8_tensor.h"

namespace ampkit {

/// What _scaled_mm wants both sides of a matrix to be a multiple of.
inline constexpr int64_t kFp8Multiple = 16;

/// a [m, k] @ b [k, n] in `dtype`, by at::_scaled_mm or emulated: see
/// has_fp8_matmul(). k and n are multiples of 16 for _scaled_mm, or k is made
/// one by zeros. `fast`: _scaled_mm may sum in less than FP32.
at::Tensor fp8_matmul_native(
    const Fp8Tensor& a, const Fp8Tensor& b, at::ScalarType dtype, bool fast);
at::Tensor fp8_matmul_emulated(
    const Fp8Tensor& a, const Fp8Tensor& b, at::ScalarType dtype);

} // namespace ampkit
