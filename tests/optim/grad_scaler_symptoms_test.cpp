// What people suffer from where a scaler meets optimizers and schedules; a test
// is named after what they see. docs/symptoms.md lists them.

#include <ampkit/amp/grad_scaler.h>

#include <memory>

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/schedule.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "amp/host_value.h"
#include "optim/synchronisation_counter.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit {
namespace {

enum class Kind { stock, ampkit_stock_kernel, ampkit_highway };

const std::vector<Kind> kKinds{
    Kind::stock, Kind::ampkit_stock_kernel, Kind::ampkit_highway};

std::unique_ptr<torch::optim::Optimizer> make_sgd(
    Kind kind, const std::vector<torch::Tensor>& weights) {
  if (kind == Kind::stock) {
    return std::make_unique<torch::optim::SGD>(
        weights, torch::optim::SGDOptions(0.5).momentum(0.5));
  }
  return std::make_unique<optim::SGD>(
      weights,
      optim::SGDOptions{
          .lr = 0.5,
          .momentum = 0.5,
          .kernel = kind == Kind::ampkit_highway ? optim::Kernel::highway
                                                 : optim::Kernel::stock});
}

void set_gradients(
    const std::vector<torch::Tensor>& weights, float first, float second) {
  weights[0].mutable_grad() = torch::tensor({first, 8.0F});
  weights[1].mutable_grad() =
      torch::tensor({8.0F, second, 8.0F}).to(weights[1].scalar_type());
}

std::vector<torch::Tensor> two_weights(at::ScalarType second = at::kFloat) {
  return {
      torch::tensor({1.0F, 2.0F}).requires_grad_(),
      torch::tensor({3.0F, 4.0F, 5.0F}).to(second).requires_grad_()};
}

// {whose optimizer and kernel} x {unscale_ called} x {what is wrong}
TEST(GradScalerSymptomsOptim, BadGradientsNeverMoveWeightsWhoeverUnscales) {
  for (const bool as_device : {false, true}) {
    for (const Kind kind : kKinds) {
      for (const bool unscale_first : {false, true}) {
        for (const float bad : {8.0F, kInf, -kInf, kNan}) {
          std::unique_ptr<TreatCpuAsDevice> treat;
          if (as_device) {
            treat = std::make_unique<TreatCpuAsDevice>();
          }
          const auto weights = two_weights();
          const auto sgd = make_sgd(kind, weights);
          GradScaler scaler({.init_scale = 8});
          for (const float value : {8.0F, bad, 8.0F}) {
            scaler.scale(torch::ones({}));
            set_gradients(weights, 8.0F, value);
            if (unscale_first) {
              scaler.unscale_(*sgd);
            }
            const auto result = scaler.step(*sgd);
            EXPECT_EQ(result.stepped(), std::isfinite(value));
            scaler.update();
            // So that the next step divides by the same again.
            scaler.update(8);
          }
          // lr 0.5, momentum 0.5, gradient 1: 0.5, then 0.75, then 0.875
          const float moved = std::isfinite(bad) ? 2.125F : 1.25F;
          EXPECT_TRUE(weights[0].equal(torch::tensor({1.0F, 2.0F}) - moved))
              << as_device << static_cast<int>(kind) << unscale_first << bad
              << weights[0];
          EXPECT_TRUE(
              weights[1].equal(torch::tensor({3.0F, 4.0F, 5.0F}) - moved));
        }
      }
    }
  }
}

// LibTorch's kernels skip at exactly 1; two dtypes with bad gradients make 2.
TEST(GradScalerSymptomsOptim, TwoBadGradientsSkipAsOneDoes) {
  for (const bool as_device : {false, true}) {
    for (const bool unscale_first : {false, true}) {
      std::unique_ptr<TreatCpuAsDevice> treat;
      if (as_device) {
        treat = std::make_unique<TreatCpuAsDevice>();
      }
      const auto weights = two_weights(at::kBFloat16);
      optim::AdamW adamw(weights, {.kernel = optim::Kernel::stock});
      GradScaler scaler({.init_scale = 8});
      scaler.scale(torch::ones({}));
      set_gradients(weights, kInf, kNan);
      if (unscale_first) {
        scaler.unscale_(adamw);
      }
      const auto result = scaler.step(adamw);
      EXPECT_TRUE(result.skipped());
      EXPECT_EQ(result.non_finite().size(), 2);
      EXPECT_TRUE(weights[0].equal(torch::tensor({1.0F, 2.0F})));
    }
  }
}

TEST(GradScalerSymptomsOptim, SkippedStepNamesItsParameters) {
  torch::nn::Sequential net(torch::nn::Linear(3, 2), torch::nn::Linear(2, 1));
  optim::AdamW unnamed(net->parameters());
  optim::AdamW named(optim::named(*net));
  torch::optim::SGD stock(net->parameters(), 1.0);
  for (torch::optim::Optimizer* optimizer :
       std::vector<torch::optim::Optimizer*>{&unnamed, &named, &stock}) {
    GradScaler scaler;
    if (optimizer != &named) {
      scaler.name_parameters(*net);
    }
    scaler.scale(torch::ones({}));
    for (const auto& parameter : net->parameters()) {
      parameter.mutable_grad() = torch::ones_like(parameter);
    }
    net[0]->as<torch::nn::Linear>()->weight.mutable_grad()[1][2] = kNan;
    net[1]->as<torch::nn::Linear>()->bias.mutable_grad()[0] = kInf;
    const auto result = scaler.step(*optimizer);
    net->zero_grad(); // the result does not depend on them
    EXPECT_EQ(
        result.describe(),
        "skipped: the loss was finite, but gradients overflowed, in "
        "'0.weight' (1 of 6 values), '1.bias' (1 of 1 values)");
  }
}

TEST(GradScalerSymptomsOptim, LearningRateDoesNotAdvanceOnSkippedSteps) {
  std::vector<double> rates[2];
  for (const bool with_overflow : {false, true}) {
    const auto weights = two_weights();
    optim::SGD sgd(weights, {.lr = 1.0});
    optim::StepLR schedule(sgd, {.step_size = 1, .gamma = 0.5});
    GradScaler scaler({.init_scale = 8});
    int skipped = 0;
    for (int step = 1; step <= (with_overflow ? 5 : 4); ++step) {
      scaler.scale(torch::ones({}));
      const bool bad = with_overflow && step == 3;
      set_gradients(weights, 8, bad ? kInf : 8);
      const auto result = scaler.step(sgd);
      if (schedule.step(result)) {
        rates[with_overflow].push_back(schedule.last_lr().front());
      }
      skipped += result.skipped() ? 1 : 0;
      scaler.update();
    }
    EXPECT_EQ(skipped, with_overflow ? 1 : 0);
    EXPECT_EQ(scaler.steps_taken(), 4);
  }
  EXPECT_EQ(rates[0], rates[1]);
}

TEST(GradScalerSymptomsOptim, Fp16ParametersWithMastersEqualAnFp32Run) {
  const auto halves =
      torch::tensor({1.0F, 2.0F}).to(at::kHalf).requires_grad_();
  const auto floats = torch::tensor({1.0F, 2.0F}).requires_grad_();
  optim::SGD low({halves}, {.lr = 1.0});
  torch::optim::SGD reference({floats}, torch::optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 1024});
  for (int step = 0; step < 20; ++step) {
    scaler.scale(torch::ones({}));
    halves.mutable_grad() = torch::tensor({1.0F, 0.5F}).to(at::kHalf);
    EXPECT_TRUE(scaler.step(low).stepped());
    scaler.update();
    floats.mutable_grad() = torch::tensor({1.0F, 0.5F}) / 1024;
    reference.step();
  }
  EXPECT_TRUE(low.master(halves).equal(floats)); // powers of two: exact
}

/// A generator and a discriminator, one weight each, each with its optimizer.
struct TwoOptimizers {
  explicit TwoOptimizers(Kind first, Kind second)
      : optimizers{
            make_sgd(first, {weights[0]}), make_sgd(second, {weights[1]})} {
    scaler.scale(torch::ones({}));
  }
  std::vector<torch::Tensor> weights = two_weights();
  std::unique_ptr<torch::optim::Optimizer> optimizers[2];
  GradScaler scaler{{.init_scale = 8}};
};

TEST(GradScalerSymptomsOptim, OneOverflowingOptimizerCanHoldBackTheOther) {
  for (const Kind first : kKinds) {
    for (const Kind second : kKinds) {
      TwoOptimizers each(first, second);
      set_gradients(each.weights, kInf, 8);
      EXPECT_TRUE(each.scaler.step(*each.optimizers[0]).skipped());
      EXPECT_TRUE(each.scaler.step(*each.optimizers[1]).stepped());
      each.scaler.update();
      EXPECT_EQ(each.scaler.get_scale(), 4.0); // once
      EXPECT_FALSE(each.weights[1].equal(torch::tensor({3.0F, 4.0F, 5.0F})));

      TwoOptimizers all(first, second);
      set_gradients(all.weights, kInf, 8);
      const auto result =
          all.scaler.step_all_or_none({*all.optimizers[0], *all.optimizers[1]});
      EXPECT_TRUE(result.skipped());
      EXPECT_EQ(result.non_finite().size(), 1);
      all.scaler.update();
      EXPECT_EQ(all.scaler.get_scale(), 4.0);
      EXPECT_EQ(all.scaler.steps_skipped(), 2);
      EXPECT_TRUE(all.weights[0].equal(torch::tensor({1.0F, 2.0F})));
      EXPECT_TRUE(all.weights[1].equal(torch::tensor({3.0F, 4.0F, 5.0F})));
    }
  }
}

TEST(GradScalerSymptomsOptim, AllOrNoneClipsTheNormOverAllOptimizers) {
  for (const Kind first : kKinds) {
    for (const Kind second : kKinds) {
      TwoOptimizers two(first, second);
      two.weights[0].mutable_grad() = torch::tensor({24.0F, 0.0F});
      two.weights[1].mutable_grad() = torch::tensor({0.0F, 32.0F, 0.0F});
      const auto result = two.scaler.step_all_or_none(
          {*two.optimizers[0], *two.optimizers[1]}, {.max_norm = 2.5});
      EXPECT_EQ(result.grad_norm(), 5.0); // of 3 and 4
      EXPECT_NEAR(two.weights[0][0].item<float>(), 1 - 0.5 * 1.5, 1e-6);
      EXPECT_NEAR(two.weights[1][1].item<float>(), 4 - 0.5 * 2.0, 1e-6);
      two.scaler.update();
      EXPECT_EQ(two.scaler.steps_taken(), 2);
    }
  }
}

TEST(GradScalerSymptomsOptim, AllOrNoneRefusesWrongSetsAndChangesNothing) {
  TwoOptimizers two(Kind::ampkit_highway, Kind::stock);
  set_gradients(two.weights, 8, 8);
  auto& first = *two.optimizers[0];
  EXPECT_ERROR(two.scaler.step_all_or_none({}), c10::ValueError, "there are 0");
  EXPECT_ERROR(
      two.scaler.step_all_or_none({first, first}), c10::ValueError, "twice");
  two.weights[1].mutable_grad().reset();
  EXPECT_ERROR(
      two.scaler.step_all_or_none({first, *two.optimizers[1]}),
      c10::Error,
      "0 of 1 parameters have gradients");
  EXPECT_TRUE(two.weights[0].equal(torch::tensor({1.0F, 2.0F})));
  const auto result = two.scaler.step_all_or_none(
      {first, *two.optimizers[1]}, {.allow_no_grad = true});
  EXPECT_TRUE(result.stepped());
  EXPECT_TRUE(two.weights[0].equal(torch::tensor({0.5F, 1.5F})));
}

// On the CPU a wait can't be seen; the code for devices can be run there.
TEST(GradScalerSymptomsOptim, CountingStepsAndFaultsWaitsForNoDevice) {
  const TreatCpuAsDevice as_device;
  const auto weights = two_weights();
  optim::SGD sgd(weights, {.lr = 1.0, .kernel = optim::Kernel::highway});
  GradScaler scaler({.hysteresis = 2});
  std::vector<StepResult> results;
  {
    const SynchronisationCounter counter;
    for (const float value : {8.0F, kInf, 8.0F, kNan, 8.0F}) {
      scaler.scale(torch::tensor(value));
      set_gradients(weights, 8, value);
      results.push_back(scaler.step(sgd, {.max_norm = 1.0}));
      scaler.update();
    }
    EXPECT_EQ(SynchronisationCounter::count(), 0);
    scaler.get_scale();
    EXPECT_GT(SynchronisationCounter::count(), 0); // the counter does count
  }
  EXPECT_EQ(scaler.steps_skipped(), 2);
  EXPECT_EQ(scaler.faults(), 2);
  EXPECT_EQ(results[1].reason(), SkipReason::loss);
}

TEST(GradScalerSymptomsOptim, NanIsFoundInEveryDtypeByFusedStepsToo) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      for (const bool as_device : {false, true}) {
        std::unique_ptr<TreatCpuAsDevice> treat;
        if (as_device) {
          treat = std::make_unique<TreatCpuAsDevice>();
        }
        const auto weight =
            torch::full({70000}, 1.0F).to(dtype).requires_grad_();
        optim::AdamW adamw({weight});
        GradScaler scaler;
        scaler.scale(torch::ones({}));
        weight.mutable_grad() = torch::ones_like(weight);
        weight.mutable_grad()[69999] = bad; // in the last chunk
        const auto result = scaler.step(adamw);
        EXPECT_TRUE(result.skipped()) << dtype << bad << as_device;
        ASSERT_EQ(result.non_finite().size(), 1);
        EXPECT_EQ(result.non_finite()[0].elements, 1);
        EXPECT_TRUE(weight.equal(torch::ones_like(weight)));
      }
    }
  }
}

} // namespace
} // namespace ampkit
