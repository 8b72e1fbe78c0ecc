#include <algorithm>
#include <optional>
#include <tuple>

#include <ATen/CPUFunctions.h>
#include <ATen/core/Tensor.h>

#include "kernels/cpu_16bit_ops.h"

// Attention with dropout, with an odd mask or under higher derivatives takes
// LibTorch's "math" path, which computes in FP32 of itself.

namespace ampkit::kernels {
namespace {

using at::Tensor;

/// What of a mask is to be converted: one may be FP32 beside 16-bit queries.
Tensor mask_of_16bit(const std::optional<Tensor>& mask) {
  const bool is_16bit = mask.has_value() && mask->defined() &&
                        at::isReducedFloatingType(mask->scalar_type());
  return is_16bit ? *mask : Tensor();
}

/// [batch, heads, sequence, features]
bool is_short(const Tensor& query, const Tensor& key) {
  return query.dim() == 4 && key.dim() == 4 &&
         std::max(query.size(2), key.size(2)) <= kShortSequence;
}

std::tuple<Tensor, Tensor> attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double dropout_p,
    bool is_causal,
    const std::optional<Tensor>& mask,
    std::optional<double> scale) {
  if (const auto dtype =
          dtype_through_fp32(query, {&key, &value}, /*is_small=*/false)) {
    const NoAutocast guard;
    const auto mask_16bit = mask_of_16bit(mask);
    Workspace fp32{&query, &key, &value, &mask_16bit};
    // The log-sum-exp is FP32 in the stock 16-bit kernel too.
    auto [output, logsumexp] =
        at::cpu::_scaled_dot_product_flash_attention_for_cpu(
            fp32.upcast(query),
            fp32.upcast(key),
            fp32.upcast(value),
            dropout_p,
            is_causal,
            mask_16bit.defined() ? fp32.upcast(mask_16bit) : mask,
            scale);
    return {downcast(output, *dtype), logsumexp};
  }
  return at::cpu::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout_p, is_causal, mask, scale);
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad_output,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& output,
    const Tensor& logsumexp,
    double dropout_p,
    bool is_causal,
    const std::optional<Tensor>& mask,
    std::optional<double> scale) {
  const auto run =
      at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward;
  if (const auto dtype = dtype_through_fp32(
          grad_output, {&query, &key, &value, &output}, is_short(query, key))) {
    const NoAutocast guard;
    const auto mask_16bit = mask_of_16bit(mask);
    Workspace fp32{&grad_output, &query, &key, &value, &output, &mask_16bit};
    const auto [dq, dk, dv] =
        run(fp32.upcast(grad_output),
            fp32.upcast(query),
            fp32.upcast(key),
            fp32.upcast(value),
            fp32.upcast(output),
            logsumexp,
            dropout_p,
            is_causal,
            mask_16bit.defined() ? fp32.upcast(mask_16bit) : mask,
            scale);
    return {downcast(dq, *dtype), downcast(dk, *dtype), downcast(dv, *dtype)};
  }
  return run(
      grad_output,
      query,
      key,
      value,
      output,
      logsumexp,
      dropout_p,
      is_causal,
      mask,
      scale);
}

} // namespace

void register_attention_16bit(torch::Library& library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &attention);
  library.impl(
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      &attention_backward);
}

} // namespace ampkit::kernels
