#include <array>
#include <tuple>

#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/core/Tensor.h>

#include "kernels/cpu_16bit_ops.h"

namespace ampkit::kernels {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

namespace stock = at::compositeexplicitautograd;

/// No convolution counts as small: where there are units, oneDNN's 16-bit ones
/// took as long as its FP32 ones at the smallest sizes too.
constexpr bool kIsSmall = false;

/// aten::convolution calls this op, and so do traced modules.
Tensor convolution(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation,
    bool transposed,
    SymIntArrayRef output_padding,
    SymInt groups,
    bool benchmark,
    bool deterministic,
    bool cudnn_enabled,
    bool allow_tf32) {
  const auto run =
      [&](const Tensor& x, const Tensor& w, const std::optional<Tensor>& b) {
        return stock::_convolution_symint(
            x,
            w,
            b,
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
            benchmark,
            deterministic,
            cudnn_enabled,
            allow_tf32);
      };
  const Tensor given_bias = bias.value_or(Tensor());
  if (const auto dtype =
          dtype_through_fp32(input, {&weight, &given_bias}, kIsSmall)) {
    const NoAutocast guard;
    Workspace fp32{&input, &weight, &given_bias};
    return downcast(
        run(fp32.upcast(input), fp32.upcast(weight), fp32.upcast(bias)),
        *dtype);
  }
  return run(input, weight, bias);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    at::OptionalSymIntArrayRef bias_sizes,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation,
    bool transposed,
    SymIntArrayRef output_padding,
    SymInt groups,
    std::array<bool, 3> output_mask) {
  const auto run = [&](const Tensor& dy, const Tensor& x, const Tensor& w) {
    return stock::convolution_backward_symint(
        dy,
        x,
        w,
        bias_sizes,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        output_mask);
  };
  if (const auto dtype =
          dtype_through_fp32(grad_output, {&input, &weight}, kIsSmall)) {
    const NoAutocast guard;
    Workspace fp32{&grad_output, &input, &weight};
    const auto [dx, dw, db] =
        run(fp32.upcast(grad_output), fp32.upcast(input), fp32.upcast(weight));
    return {downcast(dx, *dtype), downcast(dw, *dtype), downcast(db, *dtype)};
  }
  return run(grad_output, input, weight);
}

} // namespace

void register_convolution_16bit(torch::Library& library) {
  library.impl("_convolution", &convolution);
  library.impl("convolution_backward", &convolution_backward);
}

} // namespace ampkit::kernels
