#include <ampkit/amp/step_result.h>

#include <cmath>

#include <torch/torch.h>

#include "amp/step_facts.h"

namespace ampkit {
namespace {

StepResult result_of(StepFacts facts) {
  return StepResult(std::make_shared<const StepFacts>(std::move(facts)));
}

BadGradients four_bad_of_five() {
  return {
      torch::tensor({1.0F, 0.0F, 2.0F, 3.0F, 4.0F}),
      {"a", "b", "c", "d", "e"},
      {10, 10, 10, 10, 4}};
}

TEST(StepResultTest, StepThatWasTakenBlamesNobody) {
  const auto result = result_of({.bad_gradients = four_bad_of_five()});
  EXPECT_TRUE(result.stepped());
  EXPECT_EQ(result.reason(), SkipReason::none);
  EXPECT_TRUE(result.non_finite().empty());
  EXPECT_EQ(result.describe(), "stepped");
  EXPECT_EQ(result.found_inf().item<float>(), 0.0F);
}

TEST(StepResultTest, DescriptionNamesThreeAndCountsTheRest) {
  const auto result =
      result_of({.skipped = Flag(true), .bad_gradients = four_bad_of_five()});
  EXPECT_EQ(result.reason(), SkipReason::overflow);
  EXPECT_EQ(result.non_finite().size(), 4);
  EXPECT_EQ(
      result.describe(),
      "skipped: the loss was finite, but gradients overflowed, in 'a' (1 of 10 "
      "values), 'c' (2 of 10 values), 'd' (3 of 10 values) and 1 more");
  EXPECT_EQ(result.found_inf().item<float>(), 1.0F);
}

TEST(StepResultTest, BadLossComesBeforeWhatItDidToTheGradients) {
  const auto reason = [](bool bad_loss, bool leftover) {
    return result_of({.skipped = Flag(true),
                      .bad_loss = Flag(bad_loss),
                      .leftover = Flag(leftover)})
        .reason();
  };
  EXPECT_EQ(reason(true, true), SkipReason::loss);
  EXPECT_EQ(reason(true, false), SkipReason::loss);
  EXPECT_EQ(reason(false, true), SkipReason::leftover);
  EXPECT_EQ(reason(false, false), SkipReason::overflow);
}

TEST(StepResultTest, WithoutGradientsNothingIsBlamed) {
  const auto result = result_of({.skipped = Flag(true), .no_gradient = true});
  EXPECT_EQ(result.reason(), SkipReason::no_gradient);
  EXPECT_EQ(result.describe(), "skipped: no parameter had a gradient");
}

} // namespace
} // namespace ampkit
