// Values are compared with PyTorch's in tests/oracle/test_swa.py.

#include <ampkit/optim/ema.h>
#include <ampkit/optim/swa.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

void set_weights(torch::nn::Linear& module, double value) {
  const torch::NoGradGuard no_grad;
  module->weight.fill_(value);
  module->bias.fill_(value);
}

TEST(SwaTest, EveryUpdateCountsTheSame) {
  torch::nn::Linear module(2, 1);
  StochasticWeightAverage swa(*module);
  for (const double value : {1.0, 3.0, 8.0, 4.0}) {
    set_weights(module, value);
    swa.update();
  }
  const auto state = swa.state_dict();
  EXPECT_EQ(state.integer("updates"), 4);
  EXPECT_TRUE(state.tensor("average.weight").equal(torch::full({1, 2}, 4.0F)));
}

TEST(SwaTest, AveragesOf16BitWeightsMoveByLessThanTheirUlp) {
  torch::nn::Linear module(2, 1);
  module->to(at::kBFloat16);
  StochasticWeightAverage swa(*module);
  set_weights(module, 1);
  for (int i = 0; i < 999; ++i) {
    swa.update();
  }
  set_weights(module, 2);
  swa.update();
  const auto state = swa.state_dict();
  EXPECT_NEAR(state.tensor("average.weight")[0][0].item<float>(), 1.001, 1e-6);
}

TEST(SwaTest, SwapRestoresBuffersTooThatAPassInItChanged) {
  torch::nn::BatchNorm1d module(3);
  module(torch::randn({8, 3}));
  StochasticWeightAverage swa(*module);
  swa.update();
  const auto before = module->running_mean.clone();
  {
    const auto averaged = swa.swap_in();
    module(torch::randn({8, 3}));
    EXPECT_FALSE(module->running_mean.equal(before));
  }
  EXPECT_TRUE(module->running_mean.equal(before));
  EXPECT_EQ(module->num_batches_tracked.item<int64_t>(), 1);
}

TEST(SwaTest, ModulesWithoutStatisticsAreAveraged) {
  torch::nn::BatchNorm1d module(
      torch::nn::BatchNormOptions(3).track_running_stats(false));
  StochasticWeightAverage swa(*module, {.use_buffers = true});
  swa.update();
  swa.update();
  const auto averaged = swa.swap_in();
  EXPECT_TRUE(module->weight.equal(torch::ones({3})));
}

TEST(SwaTest, FlagsAreAveragedAsIntegers) {
  torch::nn::Linear module(2, 1);
  auto flag =
      module->register_buffer("flag", torch::tensor({true, false, true}));
  StochasticWeightAverage swa(*module, {.use_buffers = true});
  swa.update();
  flag.copy_(torch::tensor({false, true, true}));
  swa.update();
  EXPECT_TRUE(swa.state_dict()
                  .tensor("average.flag")
                  .equal(torch::tensor({false, false, true})));
}

TEST(SwaTest, StateComesBackToTheLastBit) {
  torch::nn::BatchNorm1d module(3);
  const auto change = [&] {
    const torch::NoGradGuard no_grad;
    module->weight.copy_(torch::randn({3}));
    module->running_mean.copy_(torch::randn({3}));
  };
  StochasticWeightAverage first(*module, {.use_buffers = true});
  for (int i = 0; i < 5; ++i) {
    change();
    first.update();
  }
  StochasticWeightAverage second(*module, {.use_buffers = true});
  second.load_state_dict(first.state_dict());
  change();
  first.update();
  second.update();
  EXPECT_EQ(second.updates(), 6);
  const auto expected = first.state_dict();
  const auto restored = second.state_dict();
  for (const char* name : {"weight", "bias", "running_mean"}) {
    const auto key = std::string("average.") + name;
    EXPECT_TRUE(restored.tensor(key).equal(expected.tensor(key))) << name;
  }
}

TEST(SwaTest, StatesThatDontFitAreRefusedUnchanged) {
  torch::nn::Linear module(2, 1);
  StochasticWeightAverage swa(*module);
  swa.update();
  torch::nn::Linear other(3, 1);
  const auto before = swa.state_dict().tensor("average.weight").clone();
  EXPECT_ERROR(
      swa.load_state_dict(StochasticWeightAverage(*other).state_dict()),
      c10::Error,
      "StochasticWeightAverage::load_state_dict",
      "'average.weight' is tensor Float [1, 3]");
  EXPECT_TRUE(swa.state_dict().tensor("average.weight").equal(before));
  EXPECT_EQ(swa.updates(), 1);
}

TEST(SwaTest, CallsOutOfOrderNameTheClass) {
  torch::nn::Linear module(2, 1);
  StochasticWeightAverage swa(*module);
  const auto averaged = swa.swap_in();
  EXPECT_ERROR(
      swa.update(), c10::Error, "StochasticWeightAverage::update", "end the");
  EXPECT_ERROR(
      static_cast<void>(swa.swap_in()),
      c10::Error,
      "StochasticWeightAverage::swap_in");
  torch::nn::ReLU empty;
  EXPECT_ERROR(
      StochasticWeightAverage{*empty}, c10::ValueError, "0 parameters");
}

} // namespace
} // namespace ampkit::optim
