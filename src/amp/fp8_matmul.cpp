#include "amp/fp8_matmul.h"

#include <map>
#include <mutex>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace ampkit {
namespace {

// Zeros at the end of dimensions; padding has no FP8 kernel, bytes do.
at::Tensor pad_with_zeros(const at::Tensor& data, at::IntArrayRef amounts) {
  return at::constant_pad_nd(data.contiguous().view(at::kByte), amounts, 0)
      .view(data.scalar_type());
}

at::Tensor column_major(const at::Tensor& data) {
  return data.t().contiguous().t();
}

bool multiplies(
    c10::Device device, bool row_wise, at::ScalarType a, at::ScalarType dtype) {
  const auto fp8 = [&](at::ScalarType type) {
    return at::zeros({kFp8Multiple, kFp8Multiple}, at::TensorOptions(device))
        .to(type);
  };
  const auto scale = [&](int64_t rows, int64_t columns) {
    const auto options = at::TensorOptions(device).dtype(at::kFloat);
    return row_wise ? at::ones({rows, columns}, options)
                    : at::ones({}, options);
  };
  try {
    fp8_matmul_native(
        {fp8(a), scale(kFp8Multiple, 1)},
        {fp8(at::kFloat8_e4m3fn), scale(1, kFp8Multiple)},
        dtype,
        false);
    return true;
  } catch (const c10::Error&) {
    return false; // what older devices and other builds answer
  }
}

} // namespace

at::Tensor fp8_matmul_native(
    const Fp8Tensor& a, const Fp8Tensor& b, at::ScalarType dtype, bool fast) {
  at::Tensor first = a.data;
  at::Tensor second = b.data;
  const int64_t rest = first.size(1) % kFp8Multiple;
  if (rest != 0) {
    first = pad_with_zeros(first, {0, kFp8Multiple - rest});
    second = pad_with_zeros(second, {0, 0, 0, kFp8Multiple - rest});
  }
  return at::_scaled_mm(
      first.contiguous(),
      column_major(second),
      a.inverse.contiguous(),
      b.inverse.contiguous(),
      /*bias=*/{},
      /*scale_result=*/{},
      dtype,
      fast);
}

at::Tensor fp8_matmul_emulated(
    const Fp8Tensor& a, const Fp8Tensor& b, at::ScalarType dtype) {
  return at::mm(
             a.data.to(at::kFloat) * a.inverse,
             b.data.to(at::kFloat) * b.inverse)
      .to(dtype);
}

bool has_fp8_matmul(
    c10::Device device, const Fp8Options& options, at::ScalarType dtype) {
  // The CPU's _scaled_mm has no units behind it either, and where the
  // processor has some, what it sums in is not documented.
  if (!device.is_cuda()) {
    return false;
  }
  static std::mutex mutex;
  static std::map<std::tuple<int, bool, at::ScalarType, at::ScalarType>, bool>
      known;
  const bool row_wise = options.recipe == Fp8Recipe::row_wise;
  const auto gradient = fp8_gradient_dtype(options);
  const std::lock_guard lock(mutex);
  const auto [found, is_new] =
      known.try_emplace({device.index(), row_wise, gradient, dtype}, false);
  if (is_new) {
    const at::NoGradGuard no_grad;
    found->second = multiplies(device, row_wise, at::kFloat8_e4m3fn, dtype) &&
                    multiplies(device, row_wise, gradient, dtype);
  }
  return found->second;
}

} // namespace ampkit
