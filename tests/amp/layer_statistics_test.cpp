#include "amp/layer_statistics.h"
#include "support/float_limits.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ampkit {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

void expect_equal(const TensorCounts& a, const TensorCounts& b) {
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.non_finite, b.non_finite);
  EXPECT_EQ(a.beyond, b.beyond);
  EXPECT_EQ(a.zero, b.zero);
  EXPECT_EQ(a.lost, b.lost);
  EXPECT_EQ(a.subnormal, b.subnormal);
  EXPECT_EQ(a.lowest, b.lowest);
  EXPECT_EQ(a.amax, b.amax);
}

// What a cast to `low` makes of float32 values, counted with plain ops.
TensorCounts by_cast(const at::Tensor& values, at::ScalarType low) {
  const auto x = values.reshape({-1});
  const auto y = x.to(low).to(torch::kFloat).abs();
  const auto n = [](const at::Tensor& mask) {
    return mask.sum().item<int64_t>();
  };
  const double smallest = low == torch::kHalf ? 0x1p-24 : 0x1p-133;
  const double normal = low == torch::kHalf ? 0x1p-14 : 0x1p-126;
  return {
      .elements = x.numel(),
      .non_finite = n(x.isfinite().logical_not()),
      .beyond = n(x.isfinite() & y.isinf()),
      .zero = n(x == 0),
      .lost = n((x != 0) & (y == 0)),
      .subnormal = n((y > 0) & (x.abs() < normal)),
      .lowest = n((y > 0) & (x.abs() < 8 * smallest)),
      .amax = torch::where(x.isfinite(), x.abs(), 0).max().item<double>()};
}

at::Tensor values_of_all_sizes(at::ScalarType low) {
  torch::manual_seed(1);
  const double lowest = low == torch::kHalf ? -30 : -140;
  const double highest = low == torch::kHalf ? 20 : 127.99;
  const auto exponents = torch::empty({4096}).uniform_(lowest, highest);
  const auto x = torch::exp2(exponents) * torch::randn({4096}).sign();
  x.slice(0, 0, 100).zero_();
  // Ties and the neighbours of limits.
  const auto edges = torch::tensor(
      {0x1p-25F,
       std::nextafter(0x1p-25F, 1.0F),
       0x1p-24F,
       0x1p-21F,
       0x1p-14F,
       65504.0F,
       65519.0F,
       65520.0F,
       0x1p-134F,
       0x1p-133F,
       0x1.FEp127F,
       0x1.FFp127F,
       -0.0F,
       kInf,
       -kInf,
       std::numeric_limits<float>::quiet_NaN()});
  return torch::cat({x, edges});
}

TEST(LayerStatisticsTest, CountsOfFloat32AreWhatACastWouldMakeOfIt) {
  for (const auto low : {torch::kHalf, torch::kBFloat16}) {
    const auto x = values_of_all_sizes(low);
    SCOPED_TRACE(low);
    expect_equal(count_elements(x, low, kAll), by_cast(x, low));
  }
}

TEST(LayerStatisticsTest, A16BitTensorIsJudgedByItsOwnDtype) {
  for (const auto low : {torch::kHalf, torch::kBFloat16}) {
    const auto other = low == torch::kHalf ? torch::kBFloat16 : torch::kHalf;
    const auto x = values_of_all_sizes(low).to(low);
    SCOPED_TRACE(low);
    expect_equal(
        count_elements(x, other, kAll), by_cast(x.to(torch::kFloat), low));
  }
}

TEST(LayerStatisticsTest, CountsOnTheDeviceAreTheSame) {
  for (const auto low : {torch::kHalf, torch::kBFloat16}) {
    const auto x = values_of_all_sizes(low);
    for (const auto& tensor : {x, x.to(low)}) {
      for (const int64_t most : {kAll, int64_t{500}}) {
        expect_equal(
            counts_from(count_on_device(tensor, low, most)),
            count_elements(tensor, low, most));
      }
    }
  }
}

TEST(LayerStatisticsTest, SampleIsEvenAndNoLargerThanAsked) {
  const auto x = torch::arange(1.0, 10001.0);
  const auto counts = count_elements(x, torch::kHalf, 100);
  EXPECT_LE(counts.elements, 100);
  EXPECT_GE(counts.elements, 90);
  EXPECT_GT(counts.amax, 9800);
  EXPECT_EQ(count_elements(x, torch::kHalf, 10000).elements, 10000);
}

TEST(LayerStatisticsTest, TensorsWithAnyStridesAreCountedByTheirElements) {
  const auto base = torch::randn({8, 6, 10});
  for (const auto& x :
       {base.transpose(0, 2),
        base.slice(1, 1, 4),
        base.select(2, 3).unsqueeze(0).expand({5, 8, 6}),
        torch::full({}, 3.0).expand({7, 7})}) {
    expect_equal(
        count_elements(x, torch::kHalf, kAll),
        count_elements(x.contiguous(), torch::kHalf, kAll));
  }
}

TEST(LayerStatisticsTest, UnderflowOfFloat32IsTheShareThatACastWouldLose) {
  const auto x = torch::tensor({0.0F, 1e-9F, 1e-9F, 1e-6F, 1.0F});
  const auto seen = shares(count_elements(x, torch::kHalf, kAll), {});
  EXPECT_EQ(seen.underflow, 0.5);
  EXPECT_EQ(seen.subnormal, 0.25);
}

TEST(LayerStatisticsTest, ZerosOf16BitsAreLossesOnlyNextToSmallestNumbers) {
  torch::manual_seed(1);
  const auto underflow = [](double sigma, const ZeroRule& rule, bool relu) {
    auto x = (torch::randn({20000}) * sigma).to(torch::kHalf);
    x = relu ? torch::relu(x) : x;
    return shares(count_elements(x, torch::kHalf, kAll), rule).underflow;
  };
  const ZeroRule rule{.was_16bit = true};
  EXPECT_LT(underflow(1, rule, true), 0.001);
  // Half the smallest number is 0.5 sigma: P(|z| < 0.5) = 0.38.
  EXPECT_NEAR(underflow(0x1p-24, rule, false), 0.38, 0.02);
  // Of the half that relu left.
  const ZeroRule known{.was_16bit = true, .structural = 0.5};
  EXPECT_NEAR(underflow(0x1p-24, known, true), 0.38, 0.03);
}

TEST(LayerStatisticsTest, NothingButZerosIsALossWhereTheRuleSaysSo) {
  const auto counts =
      count_elements(torch::zeros({100}, torch::kHalf), torch::kHalf, kAll);
  EXPECT_EQ(shares(counts, {.was_16bit = true}).underflow, 0);
  ZeroRule gradient{.was_16bit = true, .all_zero_is_loss = true};
  EXPECT_EQ(shares(counts, gradient).underflow, 1);
  gradient.structural = 1;
  EXPECT_EQ(shares(counts, gradient).underflow, 0);
}

} // namespace
} // namespace ampkit
