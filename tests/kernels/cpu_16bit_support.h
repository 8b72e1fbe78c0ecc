#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kernels/cpu_16bit.h"

namespace ampkit::kernels {

/// What dtype a test computes in: every test of an op runs in both.
class Cpu16BitTest : public ::testing::TestWithParam<c10::ScalarType> {
 protected:
  void SetUp() override {
    torch::manual_seed(7);
    set_cpu_16bit_mode(Cpu16BitMode::through_fp32);
  }
  void TearDown() override { set_cpu_16bit_mode(Cpu16BitMode::automatic); }

  /// Normally distributed, in the test's dtype.
  torch::Tensor randn(at::IntArrayRef sizes) const {
    return torch::randn(sizes).to(GetParam());
  }

  /// Expects `actual` to be `fp32` rounded once, laid out alike.
  void expect_rounded(
      const torch::Tensor& actual, const torch::Tensor& fp32) const {
    ASSERT_EQ(fp32.scalar_type(), torch::kFloat);
    ASSERT_EQ(actual.scalar_type(), GetParam());
    ASSERT_EQ(actual.sizes(), fp32.sizes());
    EXPECT_EQ(actual.strides(), fp32.strides());
    EXPECT_TRUE(torch::allclose(
        actual.to(torch::kFloat),
        fp32.to(GetParam()).to(torch::kFloat),
        /*rtol=*/0,
        /*atol=*/0,
        /*equal_nan=*/true))
        << "largest difference "
        << (actual.to(torch::kFloat) - fp32).abs().max();
  }
};

inline std::string dtype_name(
    const ::testing::TestParamInfo<c10::ScalarType>& info) {
  return c10::toString(info.param);
}

#define INSTANTIATE_FOR_16BIT(suite)                 \
  INSTANTIATE_TEST_SUITE_P(                          \
      Dtypes,                                        \
      suite,                                         \
      ::testing::Values(c10::kBFloat16, c10::kHalf), \
      dtype_name)

inline torch::Tensor up(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.to(torch::kFloat) : tensor;
}

/// The text of the error that `call` ends in.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.msg();
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// Expects the error of `call` to be LibTorch's own, word for word.
inline void expect_stock_error(const std::function<void()>& call) {
  const auto ours = error_of(call);
  set_cpu_16bit_mode(Cpu16BitMode::native);
  EXPECT_EQ(ours, error_of(call));
  set_cpu_16bit_mode(Cpu16BitMode::through_fp32);
}

} // namespace ampkit::kernels
