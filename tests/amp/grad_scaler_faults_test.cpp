// Steps that no smaller scale could have saved, and the limits to skips.

#include <ampkit/amp/grad_scaler.h>

#include <torch/torch.h>

#include "amp/scaled_training.h"
#include "amp/trial_pass.h"
#include "support/errors.h"

namespace ampkit {
namespace {

class GradScalerFaults : public OnBothPaths {};

INSTANTIATE_TEST_SUITE_P(All, GradScalerFaults, ::testing::Bool(), path_name);

TEST_P(GradScalerFaults, NanLossSkipsTheStepAndLeavesTheScale) {
  ScaledTraining t({.init_scale = 4, .growth_interval = 2});
  t.iterate(0, 0); // one clean step of two
  const auto before = t.weight().clone();
  const auto result = t.iterate(kNan, 1);
  EXPECT_EQ(result.reason(), SkipReason::loss);
  EXPECT_TRUE(t.weight().equal(before)) << t.weight();
  EXPECT_EQ(t.scaler.get_scale(), 4.0);
  EXPECT_EQ(t.scaler.state_dict().integer("_growth_tracker"), 1);
  t.iterate(0, 0);
  EXPECT_EQ(t.scaler.get_scale(), 8.0); // as if it had not been
}

TEST_P(GradScalerFaults, InfiniteLossWithFiniteGradientsIsSkippedToo) {
  ScaledTraining t({.init_scale = 4});
  t.scaler.scale(t.loss(1, 1) + kInf).backward();
  const auto result = t.scaler.step(t.sgd);
  EXPECT_EQ(result.reason(), SkipReason::loss);
  EXPECT_TRUE(result.non_finite().empty());
  EXPECT_THAT(result.describe(), ::testing::HasSubstr("the loss was inf"));
  t.scaler.update();
  EXPECT_TRUE(t.weight().equal(torch::tensor({{1.0F, 2.0F}})));
}

TEST_P(GradScalerFaults, AreCountedApartFromOverflows) {
  ScaledTraining t({.init_scale = 4});
  t.iterate(0, 1);
  t.iterate(kNan, 1);
  t.overflow();
  EXPECT_EQ(t.scaler.steps_taken(), 1);
  EXPECT_EQ(t.scaler.steps_skipped(), 2);
  EXPECT_EQ(t.scaler.faults(), 1);
  EXPECT_EQ(t.scaler.get_scale(), 2.0);
}

TEST_P(GradScalerFaults, TenInARowStopWithTheReasonAndTheParameter) {
  ScaledTraining t;
  for (int i = 0; i < 9; ++i) {
    t.iterate(kNan, 1);
  }
  const auto stop = [&] {
    t.iterate(kNan, 1);
    t.iterate(kNan, 1); // a device is an iteration late
  };
  EXPECT_ERROR(
      stop(),
      c10::Error,
      "10 iterations in a row were faults",
      "the loss was inf or NaN",
      "'weight' (",
      "max_consecutive_faults");
  EXPECT_EQ(t.scaler.get_scale(), 65536.0);
  EXPECT_TRUE(t.weight().isfinite().all().item<bool>());
}

TEST_P(GradScalerFaults, OnlyThoseInARowCount) {
  ScaledTraining t({.max_consecutive_faults = 2});
  for (int i = 0; i < 5; ++i) {
    t.iterate(kNan, 1);
    t.overflow(); // a skip, but not a fault
  }
  EXPECT_EQ(t.scaler.faults(), 5);
}

TEST_P(GradScalerFaults, WithoutALimitTheyGoOn) {
  ScaledTraining t({.max_consecutive_skips = 0, .max_consecutive_faults = 0});
  for (int i = 0; i < 250; ++i) {
    t.iterate(kNan, 1);
  }
  EXPECT_EQ(t.scaler.faults(), 250);
}

TEST_P(GradScalerFaults, AreOverflowsIfTorchExact) {
  ScaledTraining t({.init_scale = 4, .torch_exact = true});
  EXPECT_EQ(t.iterate(kNan, 1).reason(), SkipReason::overflow);
  EXPECT_EQ(t.scaler.get_scale(), 2.0);
  EXPECT_EQ(t.scaler.faults(), 0);
  for (int i = 0; i < 20; ++i) {
    t.iterate(kNan, 1); // no limit, no floor
  }
  EXPECT_EQ(t.scaler.get_scale(), 0x1p-19);
}

TEST_P(GradScalerFaults, OfOneMicroBatchSpoilTheWindow) {
  ScaledTraining t({.init_scale = 4});
  t.scaler.scale(t.loss(1, 1)).backward();
  t.scaler.scale(t.loss(1, kNan)).backward();
  t.scaler.scale(t.loss(1, 1)).backward();
  EXPECT_EQ(t.scaler.step(t.sgd).reason(), SkipReason::loss);
  t.scaler.update();
  EXPECT_TRUE(t.iterate(0, 1).stepped());
}

TEST_P(GradScalerFaults, AreSeenInALossOfManyValues) {
  ScaledTraining t({.init_scale = 4});
  auto losses = torch::ones({3}) * t.loss(0, 1);
  t.scaler.scale(losses + torch::tensor({0.0F, kInf, 0.0F})).sum().backward();
  EXPECT_EQ(t.scaler.step(t.sgd).reason(), SkipReason::loss);
}

TEST_P(GradScalerFaults, LossThatIsOnlyTriedOutIsNone) {
  ScaledTraining t({.init_scale = 4});
  {
    const TrialPass trial;
    t.scaler.scale(t.loss(kNan, 1));
  }
  EXPECT_TRUE(t.iterate(0, 1).stepped());
}

TEST_P(GradScalerFaults, AreForgottenByAbandon) {
  ScaledTraining t({.init_scale = 4});
  t.scaler.scale(t.loss(kNan, 1));
  t.scaler.abandon();
  EXPECT_TRUE(t.iterate(0, 1).stepped());
}

TEST_P(GradScalerFaults, UnclearedGradientsOfASkippedStepAreToldApart) {
  ScaledTraining t({.init_scale = 4});
  EXPECT_EQ(t.overflow().reason(), SkipReason::overflow);
  t.scaler.scale(t.loss(1, 1)).backward(); // adds to inf
  const auto result = t.scaler.step(t.sgd);
  EXPECT_EQ(result.reason(), SkipReason::leftover);
  EXPECT_THAT(result.describe(), ::testing::HasSubstr("zero_grad()"));
  t.scaler.update();
  EXPECT_EQ(t.scaler.get_scale(), 2.0); // of the overflow alone
  EXPECT_EQ(t.scaler.faults(), 1);
  EXPECT_TRUE(t.iterate(0, 1).stepped());
}

TEST_P(GradScalerFaults, GradientsClearedLateAreNoLeftovers) {
  const std::vector<std::function<void(ScaledTraining&)>> ways{
      [](auto& t) { t.sgd.zero_grad(); },
      [](auto& t) { t.sgd.zero_grad(/*set_to_none=*/false); },
      [](auto& t) { t.net->weight.mutable_grad() = torch::zeros({1, 2}); }};
  for (const auto& clear : ways) {
    ScaledTraining t({.init_scale = 4});
    t.overflow();
    const auto scaled = t.scaler.scale(t.loss(1, 1));
    clear(t); // after scale(), before backward
    scaled.backward();
    t.net->weight.mutable_grad()[0][0] = kInf;
    EXPECT_EQ(t.scaler.step(t.sgd).reason(), SkipReason::overflow);
    t.scaler.update();
    EXPECT_EQ(t.scaler.get_scale(), 1.0);
  }
}

TEST_P(GradScalerFaults, SecondMicroBatchAfterAnOverflowIsNoLeftover) {
  ScaledTraining t({.init_scale = 4});
  t.scaler.scale(t.loss(1, 1)).backward();
  t.net->weight.mutable_grad()[0][0] = kInf;
  t.scaler.scale(t.loss(1, 1)).backward();
  EXPECT_EQ(t.scaler.step(t.sgd).reason(), SkipReason::overflow);
}

class GradScalerCheck : public OnBothPaths {
 protected:
  ScaledTraining t_{{.enabled = false, .check_without_scaling = true}};
};

INSTANTIATE_TEST_SUITE_P(All, GradScalerCheck, ::testing::Bool(), path_name);

TEST_P(GradScalerCheck, WithoutScalingSkipsAndCounts) {
  const auto loss = t_.loss(1, 1);
  EXPECT_TRUE(t_.scaler.scale(loss).is_same(loss));
  t_.scaler.abandon();
  EXPECT_TRUE(t_.iterate(0, 1).stepped());
  EXPECT_TRUE(t_.weight().equal(torch::tensor({{1.0F, 1.0F}})));
  EXPECT_EQ(t_.overflow().reason(), SkipReason::overflow);
  EXPECT_EQ(t_.iterate(kNan, 1).reason(), SkipReason::loss);
  EXPECT_TRUE(t_.weight().equal(torch::tensor({{1.0F, 1.0F}})));
  EXPECT_EQ(t_.scaler.steps_skipped(), 2);
  EXPECT_EQ(t_.scaler.faults(), 1);
  EXPECT_EQ(t_.scaler.get_scale(), 1.0);
}

TEST_P(GradScalerCheck, WithoutScalingStopsAtTheLimitToo) {
  const auto run = [&] {
    for (int i = 0; i < 11; ++i) {
      t_.iterate(kNan, 1);
    }
  };
  EXPECT_ERROR(run(), c10::Error, "10 iterations in a row were faults");
}

TEST_P(GradScalerCheck, WithoutScalingSavesItsCountsOnly) {
  t_.iterate(kNan, 1);
  const auto state = t_.scaler.state_dict();
  EXPECT_FALSE(state.contains("scale"));
  GradScaler other({.enabled = false, .check_without_scaling = true});
  other.load_state_dict(state);
  EXPECT_EQ(other.faults(), 1);
  EXPECT_ERROR(
      GradScaler().load_state_dict(state),
      c10::Error,
      "checks without scaling");
}

} // namespace
} // namespace ampkit
