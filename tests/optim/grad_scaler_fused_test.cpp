
#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "optim/synchronisation_counter.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit {
namespace {

/// Two fp32 weights, 7 and 3 elements, the same in every world.
struct FusedStepWorld {
  std::vector<torch::Tensor> weights{
      torch::arange(1, 8, torch::kFloat).requires_grad_(),
      torch::full({3}, -2.0F).requires_grad_()};

  void set_grads(float factor, bool overflow) {
    weights[0].mutable_grad() = torch::arange(7, torch::kFloat) * factor;
    weights[1].mutable_grad() = torch::full({3}, 2.0F * factor);
    if (overflow) {
      weights[1].mutable_grad()[1] = kInf;
    }
  }
};

StepResult iterate(
    FusedStepWorld& world,
    torch::optim::Optimizer& optimizer,
    bool unscale_first,
    bool overflow) {
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(torch::ones({}));
  world.set_grads(1024, overflow);
  if (unscale_first) {
    scaler.unscale_(optimizer);
  }
  auto result = scaler.step(optimizer, {.max_norm = 5.0});
  scaler.update();
  return result;
}

/// Whoever unscales, whoever decides and whatever kernel runs: one outcome.
class FusedStepMatrix
    : public ::testing::TestWithParam<std::tuple<optim::Kernel, bool, bool>> {};

TEST_P(FusedStepMatrix, GivesTheWeightsOfTheStockOptimizer) {
  const auto [kernel, unscale_first, overflow] = GetParam();
  FusedStepWorld ours;
  FusedStepWorld theirs;
  optim::SGD sgd(ours.weights, {.lr = 0.5, .momentum = 0.9, .kernel = kernel});
  torch::optim::SGD stock(
      theirs.weights, torch::optim::SGDOptions(0.5).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    const auto a = iterate(ours, sgd, unscale_first, overflow && step == 1);
    const auto b = iterate(theirs, stock, false, overflow && step == 1);
    EXPECT_EQ(a.stepped(), b.stepped());
    if (a.stepped()) {
      EXPECT_NEAR(a.grad_norm(), b.grad_norm(), 1e-5);
    }
    for (size_t i = 0; i < ours.weights.size(); ++i) {
      EXPECT_TRUE(ours.weights[i].allclose(theirs.weights[i], 1e-6, 1e-6))
          << ours.weights[i] << theirs.weights[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    FusedStepMatrix,
    ::testing::Combine(
        ::testing::Values(optim::Kernel::stock, optim::Kernel::highway),
        ::testing::Bool(),
        ::testing::Bool()));

TEST(GradScalerFusedTest, LeavesTheGradientsUnwritten) {
  FusedStepWorld world;
  optim::SGD sgd(world.weights, {.lr = 0.5});
  iterate(world, sgd, false, false);
  EXPECT_TRUE(
      world.weights[0].grad().equal(torch::arange(7, torch::kFloat) * 1024));
}

TEST(GradScalerFusedTest, Fp16WeightsTrainThroughTheirMasters) {
  auto weight = torch::full({4}, 1.0F).to(torch::kHalf).requires_grad_();
  optim::SGD sgd({weight}, {.lr = 1.0});
  GradScaler scaler({.init_scale = 65536});
  for (int step = 0; step < 64; ++step) {
    scaler.scale(torch::ones({}));
    // unscaled 2^-16: lost in fp16 both as a gradient and as an update of 1
    weight.mutable_grad() = torch::ones({4}, torch::kHalf);
    EXPECT_TRUE(scaler.step(sgd).stepped());
    scaler.update();
  }
  EXPECT_EQ(sgd.master(weight)[0].item<float>(), 1.0F - 64.0F / 65536);
  EXPECT_EQ(weight[0].item<float>(), 1.0F - 64.0F / 65536);
  scaler.scale(torch::ones({}));
  EXPECT_ERROR(scaler.unscale_(sgd), c10::Error, "let step() unscale");
}

TEST(GradScalerFusedTest, Fp16GradientOverflowSkipsAndKeepsMasters) {
  auto weight = torch::full({4}, 1.0F).to(torch::kHalf).requires_grad_();
  optim::AdamW adamw({weight}, {.lr = 1.0});
  GradScaler scaler;
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    scaler.scale(torch::ones({}));
    weight.mutable_grad() =
        torch::tensor({1.0F, bad, 1.0F, 1.0F}).to(torch::kHalf);
    EXPECT_TRUE(scaler.step(adamw, {.max_norm = 1.0}).skipped());
    scaler.update();
  }
  EXPECT_TRUE(weight.equal(torch::ones({4}, torch::kHalf))) << weight;
  EXPECT_EQ(adamw.steps_of(weight), 0);
  EXPECT_EQ(scaler.get_scale(), 65536.0 / 8);
}

TEST(GradScalerFusedTest, NormalPathReadsNothingBackToTheHost) {
  FusedStepWorld world;
  optim::AdamW adamw(world.weights); // LibTorch's CPU kernel reads the step
  GradScaler scaler;
  iterate(world, adamw, false, false);
  const SynchronisationCounter counter;
  for (int step = 0; step < 3; ++step) {
    scaler.scale(torch::ones({}));
    world.set_grads(65536, step == 1);
    scaler.step(adamw, {.max_norm = 1.0});
    scaler.update();
  }
  EXPECT_EQ(SynchronisationCounter::count(), 0);
  torch::ones({}).item<float>();
  EXPECT_EQ(SynchronisationCounter::count(), 1); // the counter does count
}

TEST(GradScalerFusedTest, WeightsUpdatedInsideARegionAreSeenAtOnce) {
  auto weight = torch::ones({2, 2}).requires_grad_();
  optim::SGD sgd({weight}, {.lr = 1.0, .kernel = optim::Kernel::highway});
  const auto x = torch::ones({1, 2});
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(torch::mm(x, weight).sum().item<float>(), 4);
  weight.mutable_grad() = torch::full({2, 2}, -10.0F);
  sgd.step();
  EXPECT_EQ(torch::mm(x, weight).sum().item<float>(), 44);
}

} // namespace
} // namespace ampkit
