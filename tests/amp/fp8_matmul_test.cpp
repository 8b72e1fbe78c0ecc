#include "amp/fp8_matmul.h"

#include <gtest/gtest.h>

#include "amp/fp8_support.h"

namespace ampkit {
namespace {

Fp8Tensor random_fp8(
    at::IntArrayRef shape, torch::Dtype dtype, at::IntArrayRef scales) {
  return {torch::randn(shape).to(dtype), torch::rand(scales) + 0.5};
}

// PyTorch's own FP8 product exists on the CPU too: what is emulated is that.
TEST(Fp8MatmulTest, EmulationIsBitEqualToScaledMm) {
  torch::manual_seed(1);
  for (const auto output : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
    for (const auto dtype : {torch::kFloat8_e4m3fn, torch::kFloat8_e5m2}) {
      for (const bool row_wise : {false, true}) {
        const std::vector<int64_t> rows{7, 1};
        const std::vector<int64_t> columns{1, 48};
        const auto none = std::vector<int64_t>();
        const auto a = random_fp8({7, 64}, dtype, row_wise ? rows : none);
        const auto b = random_fp8(
            {64, 48}, torch::kFloat8_e4m3fn, row_wise ? columns : none);
        EXPECT_TRUE(equal_bits(
            fp8_matmul_emulated(a, b, output),
            fp8_matmul_native(a, b, output, false)))
            << output << dtype << row_wise;
      }
    }
  }
}

TEST(Fp8MatmulTest, InnerSizeThatIsNoMultipleOf16IsPadded) {
  torch::manual_seed(1);
  const auto a = random_fp8({16, 5}, torch::kFloat8_e5m2, {});
  const auto b = random_fp8({5, 32}, torch::kFloat8_e4m3fn, {});
  EXPECT_TRUE(
      fp8_matmul_native(a, b, torch::kFloat, false)
          .allclose(fp8_matmul_emulated(a, b, torch::kFloat), 1e-6, 1e-6));
}

TEST(Fp8MatmulTest, CpuHasNoUnitsForIt) {
  EXPECT_FALSE(has_fp8_matmul(torch::kCPU));
}

TEST(Fp8MatmulTest, CudaDeviceMultipliesAsEmulated) {
  if (!torch::cuda::is_available()) {
    GTEST_SKIP() << "needs a CUDA device";
  }
  const torch::Device cuda(torch::kCUDA, 0);
  if (!has_fp8_matmul(cuda)) {
    GTEST_SKIP() << "needs a CUDA device of capability 8.9";
  }
  torch::manual_seed(1);
  const auto a = random_fp8({32, 64}, torch::kFloat8_e5m2, {});
  const auto b = random_fp8({64, 48}, torch::kFloat8_e4m3fn, {});
  const Fp8Tensor on_a{a.data.to(cuda), a.inverse.to(cuda)};
  const Fp8Tensor on_b{b.data.to(cuda), b.inverse.to(cuda)};
  const auto native = fp8_matmul_native(on_a, on_b, torch::kBFloat16, false);
  const auto emulated = fp8_matmul_emulated(a, b, torch::kBFloat16);
  // One rounding of BF16, and sums in another order.
  EXPECT_TRUE(native.cpu().allclose(emulated, 0x1p-7, 0x1p-7));
}

} // namespace
} // namespace ampkit
