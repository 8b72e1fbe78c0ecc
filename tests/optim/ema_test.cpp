// Values are compared with PyTorch's in tests/oracle/test_optimizers.py.

#include <ampkit/optim/ema.h>

#include <ampkit/amp/autocast.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

void fill(torch::nn::Linear& module, double value) {
  const torch::NoGradGuard no_grad;
  module->weight.fill_(value);
  module->bias.fill_(value);
}

TEST(EmaTest, FirstUpdateCopiesAndLaterOnesMove) {
  torch::nn::Linear module(2, 1);
  ExponentialMovingAverage ema(*module, {.decay = 0.5});
  fill(module, 1);
  ema.update();
  fill(module, 3);
  ema.update();
  const auto state = ema.state_dict();
  EXPECT_TRUE(state.tensor("average.weight").equal(torch::full({1, 2}, 2.0F)));
  EXPECT_EQ(state.integer("updates"), 2);
}

TEST(EmaTest, SwapShowsTheAveragesAndRestoresEveryBit) {
  torch::nn::Linear module(2, 1);
  module->to(at::kBFloat16);
  SGD sgd(module->parameters(), {.lr = 1e-4});
  ExponentialMovingAverage ema(*module, {.decay = 0.5});
  fill(module, 1);
  ema.update();
  for (const auto& p : module->parameters()) {
    p.mutable_grad() = torch::ones_like(p);
  }
  sgd.step();
  const auto master = sgd.master(module->weight).clone();
  fill(module, 1);
  {
    const auto averaged = ema.swap_in();
    EXPECT_TRUE(module->weight.eq(1).all().item<bool>());
    EXPECT_ERROR(ema.update(), c10::Error, "end the swap");
    EXPECT_ERROR(static_cast<void>(ema.swap_in()), c10::Error, "already");
  }
  for (const auto& p : module->parameters()) {
    p.mutable_grad() = torch::zeros_like(p);
  }
  sgd.step();
  EXPECT_TRUE(sgd.master(module->weight).equal(master))
      << "masters keep their bits over a swap";
}

TEST(EmaTest, SwapInsideARegionIsSeenAtOnce) {
  torch::nn::Linear module(2, 1);
  ExponentialMovingAverage ema(*module, {.decay = 0.5});
  fill(module, 1);
  ema.update();
  fill(module, 3);
  const auto x = torch::ones({1, 2});
  const Autocast autocast(torch::kCPU, torch::kBFloat16);
  const auto output = [&] { return module->forward(x).item<float>(); };
  for (const bool with_grad : {true, false}) {
    const torch::AutoGradMode mode(with_grad);
    EXPECT_EQ(output(), 9);
    {
      const auto averaged = ema.swap_in();
      EXPECT_EQ(output(), 3);
    }
    EXPECT_EQ(output(), 9);
  }
}

TEST(EmaTest, AveragesOf16BitWeightsMoveByLessThanTheirUlp) {
  torch::nn::Linear module(2, 1);
  module->to(at::kBFloat16);
  ExponentialMovingAverage ema(*module, {.decay = 0.9999});
  fill(module, 1);
  ema.update();
  fill(module, 2);
  ema.update();
  const auto state = ema.state_dict();
  EXPECT_EQ(state.tensor("average.weight").scalar_type(), at::kFloat);
  EXPECT_NEAR(state.tensor("average.weight")[0][0].item<float>(), 1.0001, 1e-7);
}

TEST(EmaTest, SwapBeforeTheFirstUpdateChangesNothing) {
  torch::nn::Linear module(2, 1);
  ExponentialMovingAverage ema(*module);
  fill(module, 4);
  const auto averaged = ema.swap_in();
  EXPECT_TRUE(module->weight.eq(4).all().item<bool>());
}

TEST(EmaTest, StateComesBackToTheLastBit) {
  torch::nn::BatchNorm1d module(3);
  ExponentialMovingAverage first(*module, {.decay = 0.9, .use_buffers = true});
  for (int i = 0; i < 5; ++i) {
    const torch::NoGradGuard no_grad;
    module->weight.copy_(torch::randn({3}));
    module->running_mean.copy_(torch::randn({3}));
    first.update();
  }
  ExponentialMovingAverage second(*module, {.decay = 0.9, .use_buffers = true});
  second.load_state_dict(first.state_dict());
  first.update();
  second.update();
  const auto expected = first.state_dict();
  const auto restored = second.state_dict();
  EXPECT_EQ(restored.integer("updates"), 6);
  for (const char* name : {"weight", "bias", "running_mean"}) {
    const auto key = std::string("average.") + name;
    EXPECT_TRUE(restored.tensor(key).equal(expected.tensor(key))) << name;
  }
}

TEST(EmaTest, StatesThatDontFitAreRefusedUnchanged) {
  torch::nn::Linear module(2, 1);
  ExponentialMovingAverage ema(*module);
  ema.update();
  torch::nn::Linear other(torch::nn::LinearOptions(3, 1).bias(false));
  ExponentialMovingAverage wrong(*other);
  const auto before = ema.state_dict().tensor("average.weight").clone();
  EXPECT_ERROR(
      ema.load_state_dict(wrong.state_dict()),
      c10::Error,
      "'average.weight' is tensor Float [1, 3]",
      "'average.bias' is missing");
  auto extra = ema.state_dict();
  extra.set("average.more", torch::ones({1}));
  EXPECT_ERROR(ema.load_state_dict(extra), c10::Error, "3 averages");
  EXPECT_TRUE(ema.state_dict().tensor("average.weight").equal(before));
}

TEST(EmaTest, ArgumentsAreChecked) {
  torch::nn::Linear module(2, 1);
  EXPECT_ERROR(
      ExponentialMovingAverage(*module, {.decay = 1.5}),
      c10::ValueError,
      "decay",
      "1.5");
  torch::nn::ReLU empty;
  EXPECT_ERROR(
      ExponentialMovingAverage{*empty}, c10::ValueError, "0 parameters");
}

} // namespace
} // namespace ampkit::optim
