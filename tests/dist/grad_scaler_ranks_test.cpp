// GradScaler on several ranks: all skip the same steps, and their scales stay
// equal. Gradients are set by hand, different on each rank, as if nothing else
// made them equal.

#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/gradient_accumulation.h>
#include <ampkit/dist/agreement.h>
#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/dist/spawn_threads.h>
#include <ampkit/optim/sgd.h>

#include "dist/small_models.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::dist {
namespace {

/// One rank's weight {1, 2} and scaler.
struct RankScaler {
  explicit RankScaler(const Context& context, GradScalerOptions options = {})
      : scaler(with_agreement(context, std::move(options))) {}

  static GradScalerOptions with_agreement(
      const Context& context, GradScalerOptions options) {
    options.init_scale = 4;
    options.growth_interval = 2;
    options.agree_over_ranks = max_over_ranks(context);
    return options;
  }

  /// A step with this gradient, before unscaling; none: no gradient at all.
  StepResult step(std::optional<float> gradient, float loss = 1) {
    scaler.scale(at::full({}, loss));
    weight.mutable_grad() = gradient ? at::full({2}, *gradient) : at::Tensor();
    return scaler.step(optimizer);
  }

  at::Tensor weight = at::tensor({1.0F, 2.0F}).requires_grad_();
  torch::optim::SGD optimizer{{weight}, torch::optim::SGDOptions(1.0)};
  GradScaler scaler;
};

void check_scale(const GradScaler& scaler, double expected) {
  TORCH_CHECK(
      scaler.get_scale() == expected,
      "the scale is ",
      scaler.get_scale(),
      ", not ",
      expected);
}

TEST(GradScalerRanksTest, OverflowOnOneRankSkipsTheStepOnAll) {
  for (const int culprit : {0, 1, 2}) {
    spawn_threads(3, [&](const Context& context) {
      RankScaler rank(context);
      const bool bad = context.rank() == culprit;
      const auto result = rank.step(bad ? kInf : 4);
      TORCH_CHECK(result.skipped());
      TORCH_CHECK(result.reason() == SkipReason::overflow);
      TORCH_CHECK(rank.weight[0].item<float>() == 1);
      TORCH_CHECK(
          bad != (result.describe().find("another rank") != std::string::npos),
          result.describe());
      rank.scaler.update();
      check_scale(rank.scaler, 2);
      TORCH_CHECK(rank.step(2).stepped());
      TORCH_CHECK(rank.weight[0].item<float>() == 0);
    });
  }
}

TEST(GradScalerRanksTest, FaultOfOneRanksLossLeavesTheScaleOfAllAlone) {
  spawn_threads(2, [](const Context& context) {
    RankScaler rank(context);
    const auto result = rank.step(4, context.rank() == 1 ? kNan : 1);
    TORCH_CHECK(result.skipped());
    TORCH_CHECK(result.reason() == SkipReason::loss, result.describe());
    rank.scaler.update();
    check_scale(rank.scaler, 4);
    TORCH_CHECK(rank.scaler.faults() == 1);
  });
}

TEST(GradScalerRanksTest, WithoutAgreementRanksDriftApart) {
  std::vector<double> scales(2);
  spawn_threads(2, [&](const Context& context) {
    RankScaler rank(context);
    rank.scaler = GradScaler({.init_scale = 4});
    rank.step(context.rank() == 0 ? kInf : 4);
    rank.scaler.update();
    scales[static_cast<size_t>(context.rank())] = rank.scaler.get_scale();
  });
  EXPECT_NE(scales[0], scales[1]);
}

TEST(GradScalerRanksTest, RankWithoutGradientsFollowsTheOthers) {
  spawn_threads(2, [](const Context& context) {
    RankScaler rank(context);
    const bool empty = context.rank() == 1;
    const auto gradient = [&](float value) {
      return empty ? std::nullopt : std::optional(value);
    };
    TORCH_CHECK(rank.step(gradient(kInf)).skipped());
    rank.scaler.update();
    check_scale(rank.scaler, 2);
    for (int i = 0; i < 2; ++i) {
      TORCH_CHECK(rank.step(gradient(2)).stepped());
      rank.scaler.update();
    }
    check_scale(rank.scaler, 4); // grown after 2 clean steps
    TORCH_CHECK(rank.scaler.steps_taken() == 2);
    TORCH_CHECK(rank.weight[0].item<float>() == (empty ? 1 : -1));
  });
}

TEST(GradScalerRanksTest, NoGradientOnAnyRankIsTheUsualError) {
  EXPECT_ERROR(
      spawn_threads(
          2,
          [](const Context& context) {
            RankScaler(context).step(std::nullopt);
          }),
      c10::Error,
      "0 of 1 parameters have gradients");
  spawn_threads(2, [](const Context& context) {
    RankScaler rank(context);
    rank.scaler.scale(at::ones({}));
    const auto result =
        rank.scaler.step(rank.optimizer, {.allow_no_grad = true});
    TORCH_CHECK(result.reason() == SkipReason::no_gradient);
  });
}

TEST(GradScalerRanksTest, UnscaledGradientsAreAgreedUponToo) {
  for (const bool steps : {false, true}) {
    spawn_threads(2, [&](const Context& context) {
      RankScaler rank(context);
      rank.scaler.scale(at::ones({}));
      rank.weight.mutable_grad() =
          at::full({2}, context.rank() == 0 ? kInf : 4);
      rank.scaler.unscale_(rank.optimizer);
      if (steps) {
        TORCH_CHECK(rank.scaler.step(rank.optimizer).skipped());
      }
      rank.scaler.update();
      check_scale(rank.scaler, 2);
    });
  }
}

TEST(GradScalerRanksTest, StepAllOrNoneIsForAllRanks) {
  spawn_threads(2, [](const Context& context) {
    RankScaler rank(context);
    const auto other = at::ones({1}).requires_grad_();
    torch::optim::SGD second({other}, torch::optim::SGDOptions(1.0));
    rank.scaler.scale(at::ones({}));
    rank.weight.mutable_grad() = at::ones({2});
    other.mutable_grad() = at::full({1}, context.rank() == 0 ? kNan : 4);
    const auto result = rank.scaler.step_all_or_none({rank.optimizer, second});
    TORCH_CHECK(result.skipped());
    TORCH_CHECK(rank.weight[0].item<float>() == 1);
  });
}

TEST(GradScalerRanksTest, FusedOptimizersAgreeToo) {
  spawn_threads(2, [](const Context& context) {
    RankScaler rank(context);
    optim::SGD fused({rank.weight}, {.lr = 1.0});
    rank.scaler.scale(at::ones({}));
    rank.weight.mutable_grad() = at::full({2}, context.rank() == 1 ? -kInf : 4);
    TORCH_CHECK(rank.scaler.step(fused, {.max_norm = 1.0}).skipped());
    TORCH_CHECK(rank.weight[0].item<float>() == 1);
    rank.scaler.update();
    check_scale(rank.scaler, 2);
  });
}

TEST(GradScalerRanksTest, CheckingWithoutScalingAgreesToo) {
  spawn_threads(2, [](const Context& context) {
    RankScaler rank(context, {.enabled = false, .check_without_scaling = true});
    TORCH_CHECK(rank.step(context.rank() == 1 ? kInf : 1).skipped());
    rank.scaler.update();
    TORCH_CHECK(rank.scaler.steps_skipped() == 1);
  });
}

TEST(GradScalerRanksTest, HookThatChangesTheShapeIsAnError) {
  GradScaler scaler(
      {.agree_over_ranks = [](at::Tensor& flags) { flags = flags[0]; }});
  auto weight = at::ones({1}).requires_grad_();
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(1.0));
  scaler.scale(at::ones({}));
  weight.mutable_grad() = at::ones({1});
  EXPECT_ERROR(
      scaler.step(optimizer), c10::Error, "must keep the shape [4], got []");
}

// Overflows come and go, here on one rank, there on the other, in fp16 training
// by DistributedDataParallel with accumulation.
TEST(GradScalerRanksTest, ScalesAndWeightsStayEqualThroughManyOverflows) {
  std::vector<std::vector<double>> scales(2);
  std::vector<std::vector<at::Tensor>> weights(2);
  spawn_threads(2, [&](const Context& context) {
    SmallNet net(true);
    DistributedDataParallel ddp(*net, context);
    optim::SGD optimizer(net->parameters(), {.lr = 0.05});
    GradScaler scaler(
        {.init_scale = 1024,
         .growth_interval = 3,
         .agree_over_ranks = max_over_ranks(context)});
    const auto me = static_cast<size_t>(context.rank());
    for (int64_t step = 0; step < 30; ++step) {
      const auto micro = [&](bool bad) {
        auto input = at::sin(
                         at::arange(48, at::kFloat) *
                         (1.0 + 0.1 * static_cast<double>(step)))
                         .view({6, 8});
        auto loss = ddp.forward([&] { return net(input); }).square().mean();
        loss = bad ? loss * kInf : loss;
        scaler.scale(loss).backward();
      };
      {
        const auto no_sync = ddp.no_sync();
        micro(step % 7 == 3 && context.rank() == 0);
      }
      micro(step % 5 == 2 && context.rank() == 1);
      scaler.step(optimizer, {.max_norm = 1.0});
      scaler.update();
      ddp.zero_grad();
      scales[me].push_back(scaler.get_scale());
    }
    weights[me] = copies(net->parameters());
  });
  EXPECT_EQ(scales[0], scales[1]);
  EXPECT_EQ(difference(weights[0], weights[1]), 0);
}

TEST(AgreementTest, MaximumAndSumOverRanks) {
  spawn_threads(3, [](const Context& context) {
    auto values = at::full({2}, context.rank() + 1.0);
    values[0] *= -1;
    const auto sum = sum_over_ranks(context)(values);
    TORCH_CHECK(sum.equal(at::tensor({-6.0F, 6.0F})), sum);
    max_over_ranks(context)(values);
    TORCH_CHECK(values.equal(at::tensor({-1.0F, 3.0F})), values);
  });
}

// Ranks with different numbers of tokens: the gradient is the mean over all.
TEST(AgreementTest, AccumulationCountsSamplesOfAllRanks) {
  spawn_threads(2, [](const Context& context) {
    auto weight = at::ones({1}).requires_grad_();
    GradientAccumulation window(
        {weight},
        {.micro_batches = 1,
         .expected_count = 4,
         .sum_over_ranks = sum_over_ranks(context)});
    const int64_t count = context.rank() == 0 ? 1 : 3;
    window.weigh((weight * 2).sum() * count, count).backward();
    // Summed over the ranks, as the option asks for.
    weight.mutable_grad() = sum_over_ranks(context)(weight.grad());
    window.finish();
    TORCH_CHECK(weight.grad().item<float>() == 2, weight.grad());
  });
}

} // namespace
} // namespace ampkit::dist
