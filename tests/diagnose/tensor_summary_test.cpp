#include <ampkit/diagnose/tensor_summary.h>

#include <torch/torch.h>

#include "diagnose/tensor_flags.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::diagnose {
namespace {

class SummaryOfEachDtype : public testing::TestWithParam<at::ScalarType> {};

TEST_P(SummaryOfEachDtype, CountsWhatIsThere) {
  const auto tensor =
      torch::tensor({0.0F, -0.0F, 2.0F, -6.0F, kInf, -kInf, kNan, 1.0F})
          .reshape({4, 2})
          .to(GetParam());
  const auto summary = summarize(tensor);
  EXPECT_EQ(summary.dtype, GetParam());
  EXPECT_EQ(summary.elements, 8);
  EXPECT_EQ(summary.min, -6);
  EXPECT_EQ(summary.max, 2);
  EXPECT_EQ(summary.mean, -3.0 / 5);
  EXPECT_EQ(summary.zeros, 2);
  EXPECT_EQ(summary.nans, 1);
  EXPECT_EQ(summary.positive_infs, 1);
  EXPECT_EQ(summary.negative_infs, 1);
  EXPECT_EQ(summary.first_bad_row, 2);
  EXPECT_EQ(summary.amax(), 6);
}

TEST_P(SummaryOfEachDtype, FlagsSayWhichKindOfBadValueThereIs) {
  for (const float bad : {kNan, kInf, -kInf}) {
    const auto tensor = torch::zeros({70'001}, GetParam());
    EXPECT_FALSE(flags_of(tensor).any());
    tensor[70'000] = bad;
    const Flags expected{
        .nan = std::isnan(bad),
        .positive_inf = bad > 0,
        .negative_inf = bad < 0};
    EXPECT_EQ(flags_of(tensor), expected);
    const auto bits = flags_on_device(tensor);
    EXPECT_EQ(flags_from(bits.item<uint8_t>()), expected);
    EXPECT_FALSE(std::isfinite(largest_magnitude(tensor)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    SummaryOfEachDtype,
    testing::Values(at::kFloat, at::kDouble, at::kHalf, at::kBFloat16));

TEST(TensorSummaryTest, SubnormalsAreThoseOfTheDtype) {
  const auto tensor = torch::tensor({1e-5F, 1e-7F, 1.0F});
  EXPECT_EQ(summarize(tensor).subnormals, 0);
  EXPECT_EQ(summarize(tensor.to(at::kHalf)).subnormals, 2);
}

TEST(TensorSummaryTest, GapsAreNotRead) {
  const auto whole = torch::full({4, 4}, kNan);
  const auto column = whole.select(1, 2);
  column.fill_(3);
  EXPECT_FALSE(flags_of(column).any());
  EXPECT_EQ(summarize(column).max, 3);
  EXPECT_EQ(largest_magnitude(column), 3);
  EXPECT_EQ(share_of_zeros(column), 0);
}

TEST(TensorSummaryTest, TextNamesOnlyWhatIsThere) {
  const auto text = to_string(summarize(torch::tensor({1.0F, 0.0F, kInf})));
  EXPECT_THAT(text, testing::HasSubstr("Float [3]: 0 to 1"));
  EXPECT_THAT(text, testing::HasSubstr("1 inf of 3"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("NaN")));
  EXPECT_EQ(
      to_string(summarize(torch::tensor({kNan}))),
      "Float [1]: nothing finite, 1 NaN of 1");
}

TEST(TensorSummaryTest, AnotherDtypeIsRefused) {
  EXPECT_ERROR(
      summarize(torch::ones({2}, at::kLong)),
      c10::ValueError,
      "diagnose::summarize",
      "Float, Double, Half or BFloat16");
}

} // namespace
} // namespace ampkit::diagnose
