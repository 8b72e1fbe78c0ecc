#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "kernels/cpu_16bit.h"
#include "kernels/cpu_16bit_workspace.h"
#include "kernels/no_autocast.h"

// What the families of 16-bit kernels share. Each of them registers wrappers
// that hand inputs they do not want, unchanged, to the stock kernel.

namespace ampkit::kernels {

void register_matmul_16bit(torch::Library& library);
void register_convolution_16bit(torch::Library& library);
void register_attention_16bit(torch::Library& library);
void register_gelu_16bit(torch::Library& library);

/// Up to here a product takes less time in FP32 than oneDNN takes to start one
/// in 16 bits (about 10 us, whatever the units), and so do the many products
/// that attention's backward is cut into if the sequences are this short.
constexpr int64_t kSmallMultiplyAdds = 1 << 18;
constexpr int64_t kShortSequence = 255;

/// The 16-bit dtype to run through FP32, if `lead` has one that is to, and
/// every other defined tensor has the same. Mixed dtypes are for the stock
/// kernel, which rejects or accepts them in its own words. `is_small`: the work
/// is below the limit above.
inline std::optional<c10::ScalarType> dtype_through_fp32(
    const at::Tensor& lead,
    std::initializer_list<const at::Tensor*> others,
    bool is_small) {
  const auto dtype = lead.scalar_type();
  const auto route = cpu_16bit_route(dtype);
  if (route == Cpu16BitRoute::stock ||
      (route == Cpu16BitRoute::small_through_fp32 && !is_small)) {
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

} // namespace ampkit::kernels
