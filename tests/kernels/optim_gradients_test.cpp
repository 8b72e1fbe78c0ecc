#include "kernels/optim_gradients.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kernels/float_type.h"
#include "kernels/optim_targets.h"
#include "support/float_limits.h"

namespace ampkit::kernels {
namespace {

GradientSums inspect(const at::Tensor& grad) {
  return inspect_gradient(
      {grad.const_data_ptr(),
       type_of(grad),
       static_cast<size_t>(grad.numel())});
}

double exact_sum(const at::Tensor& grad) {
  return grad.to(at::kDouble).square().sum().item<double>();
}

class GradientFormats : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(GradientFormats, SumsSquaresOfEverySizeAroundTheVectorAndBlockSizes) {
  torch::manual_seed(1);
  const auto all = torch::randn({9000}).to(GetParam());
  for_each_target([&] {
    for (const int64_t size :
         {0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 131, 4095, 4097, 9000}) {
      const auto grad = all.slice(0, 0, size);
      const auto sums = inspect(grad);
      EXPECT_EQ(sums.non_finite, 0);
      // fp32 sums of at most 4096 non-negative terms, over at least 4 lanes:
      // 1024 additions, each off by 2^-24 at most; in practice far less.
      EXPECT_NEAR(sums.sum_of_squares, exact_sum(grad), exact_sum(grad) * 1e-5)
          << size;
    }
  });
}

TEST_P(GradientFormats, CountsEveryInfAndNanWhereverItStands) {
  for_each_target([&] {
    for (const int64_t place : {0, 5, 31, 4095, 4096, 8191, 8999}) {
      auto grad = torch::ones({9000}).to(GetParam());
      grad[place] = kNan;
      EXPECT_EQ(inspect(grad).non_finite, 1) << place;
      grad[8000] = kInf;
      grad[8001] = -kInf;
      const auto sums = inspect(grad);
      EXPECT_EQ(sums.non_finite, 3) << place;
      EXPECT_EQ(sums.sum_of_squares, 9000 - 3) << place;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    All,
    GradientFormats,
    ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
    [](const auto& tested) { return std::string(toString(tested.param)); });

TEST(GradientInspectionTest, SquaresBeyondFp32AreNotTakenForInfinity) {
  for_each_target([&] {
    const auto grad = torch::full({5000}, 1e30F);
    const auto sums = inspect(grad);
    EXPECT_EQ(sums.non_finite, 0);
    EXPECT_NEAR(sums.sum_of_squares / exact_sum(grad), 1, 1e-12);
    const auto bf16 = grad.to(at::kBFloat16);
    EXPECT_EQ(inspect(bf16).non_finite, 0);
    EXPECT_NEAR(inspect(bf16).sum_of_squares / exact_sum(bf16), 1, 1e-12);
  });
}

TEST(GradientInspectionTest, SquaresBelowFp32AreNotLost) {
  for_each_target([&] {
    const auto grad = torch::full({5000}, 1e-30F);
    EXPECT_NEAR(inspect(grad).sum_of_squares / exact_sum(grad), 1, 1e-12);
    EXPECT_EQ(inspect(torch::zeros({5000})).sum_of_squares, 0);
  });
}

TEST(GradientInspectionTest, ReadsFromAddressesThatAreNotAligned) {
  for_each_target([&] {
    const auto all = torch::arange(200, torch::kFloat);
    const auto grad = all.slice(0, 3, 103);
    EXPECT_EQ(inspect(grad).sum_of_squares, exact_sum(grad));
  });
}

} // namespace
} // namespace ampkit::kernels
