#pragma once

#include <initializer_list>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "kernels/cpu_16bit.h"
#include "kernels/cpu_16bit_workspace.h"

// What the families of 16-bit kernels share. Each of them registers wrappers
// that hand inputs they do not want, unchanged, to the stock kernel.

namespace ampkit::kernels {

void register_matmul_16bit(torch::Library& library);
void register_convolution_16bit(torch::Library& library);
void register_attention_16bit(torch::Library& library);

/// The 16-bit dtype to run through FP32, if `lead` has one and every other
/// defined tensor has the same. Mixed dtypes are for the stock kernel, which
/// rejects or accepts them in its own words.
inline std::optional<c10::ScalarType> dtype_through_fp32(
    const at::Tensor& lead, std::initializer_list<const at::Tensor*> others) {
  const auto dtype = lead.scalar_type();
  if (!runs_through_fp32(dtype)) {
    return std::nullopt;
  }
  for (const auto* other : others) {
    if (other->defined() && other->scalar_type() != dtype) {
      return std::nullopt;
    }
  }
  return dtype;
}

/// `tensor` rounded to `dtype`; undefined stays undefined.
inline at::Tensor downcast(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

/// The FP32 kernels call other ops; an autocast region around a backward pass
/// must not take those down to 16 bits again.
class NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKey::AutocastCPU};
};

} // namespace ampkit::kernels
