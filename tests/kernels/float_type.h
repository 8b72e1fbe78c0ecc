#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/optim_span.h"

namespace ampkit::kernels {

/// What the kernels call the dtype of `tensor`.
inline Float type_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf       ? Float::fp16
         : tensor.scalar_type() == at::kBFloat16 ? Float::bf16
                                                 : Float::fp32;
}

} // namespace ampkit::kernels
