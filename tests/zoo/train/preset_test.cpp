// What each precision preset stores and computes in, in a Trainer.

#include <ampkit/zoo/train/trainer.h>

#include <torch/torch.h>

#include "support/errors.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PresetTest, PresetsWithoutMastersStoreNone) {
  for (const auto& [preset, dtype] :
       {std::pair("fp16-true", torch::kHalf),
        {"bf16-true", torch::kBFloat16}}) {
    const auto model = linear_model();
    const auto before = model.module->parameters()[0].detach().clone();
    auto config = small_config();
    config.precision.preset = preset;
    Trainer trainer(config, model, quadrants());
    trainer.run({.on_step = [&](const StepRecord& record) {
      EXPECT_FALSE(record.skipped);
      EXPECT_EQ(record.scale, 1) << "no loss is scaled in " << preset;
    }});
    const auto weight = model.module->parameters()[0].detach();
    EXPECT_EQ(weight.scalar_type(), dtype);
    EXPECT_FALSE(weight.equal(before.to(dtype)));
    const auto state = trainer.state_dict();
    EXPECT_TRUE(state.contains("optimizer.state.1.weight.exp_avg"));
    for (const auto& [name, value] : state.entries()) {
      EXPECT_THAT(name, Not(HasSubstr(".master"))) << preset;
    }
  }
}

// That is what masters are for: with a step of 1e-6 no weight of bf16 moves.
TEST(PresetTest, OnlyMastersAbsorbSmallUpdates) {
  for (const auto& [preset, moves] :
       {std::pair("bf16-true", false), {"bf16-master", true}}) {
    const auto model = linear_model();
    const auto parameters = model.module->parameters();
    {
      const torch::NoGradGuard no_grad;
      parameters[0].fill_(1);
    }
    auto config = small_config();
    config.precision.preset = preset;
    config.optimizer.lr = 1e-6;
    Trainer trainer(config, model, quadrants());
    trainer.run();
    const auto state = trainer.state_dict();
    EXPECT_TRUE(parameters[0].eq(1).all().item<bool>()) << preset;
    EXPECT_EQ(state.contains("optimizer.state.1.weight.master"), moves);
    if (moves) {
      const auto& master = state.tensor("optimizer.state.1.weight.master");
      EXPECT_TRUE(master.ne(1).any().item<bool>());
    }
  }
}

/// Two linear layers that FP8 takes, and a head of 4 classes that it doesn't.
Model wide_model() {
  torch::manual_seed(3);
  auto network = torch::nn::Sequential(
      torch::nn::Flatten(),
      torch::nn::Linear(64, 32),
      torch::nn::ReLU(),
      torch::nn::Linear(32, 4));
  return {network.ptr(), [network](const at::Tensor& x) mutable {
            return network->forward(x);
          }};
}

double last_loss(const std::string& preset, const std::string& recipe) {
  auto config = small_config();
  config.precision.preset = preset;
  config.precision.fp8_recipe = recipe;
  config.train.epochs = 4;
  config.optimizer.lr = 3e-3;
  Trainer trainer(config, wide_model(), quadrants(64));
  double loss = 0;
  trainer.run({.on_eval = [&](const EvalRecord& r) { loss = r.loss; }});
  return loss;
}

TEST(PresetTest, Fp8TrainsLinearLayersInEveryRecipe) {
  const double fp32 = last_loss("fp32", "current");
  const double bf16 = last_loss("bf16-mixed", "current");
  EXPECT_LT(fp32, 0.2); // guessing costs log(4) = 1.39
  for (const std::string recipe : {"current", "delayed", "row-wise"}) {
    const double fp8 = last_loss("fp8-mixed", recipe);
    EXPECT_NEAR(fp8, fp32, 0.05) << recipe;
    EXPECT_NE(fp8, bf16) << recipe << " computed in bf16";
  }
}

TEST(PresetTest, Fp8RunsResumeBitForBit) {
  for (const std::string recipe : {"current", "delayed"}) {
    auto config = small_config();
    config.precision.preset = "fp8-mixed";
    config.precision.fp8_recipe = recipe;
    const auto data = quadrants();
    Trainer whole(config, wide_model(), data);
    whole.run();
    const auto expected = frozen(whole.state_dict());
    EXPECT_EQ(expected.contains("fp8.1.weight.scale"), recipe == "delayed");
    io::StateDict saved;
    Trainer first(config, wide_model(), data);
    first.run(
        {.on_checkpoint = [&](auto) { saved = frozen(first.state_dict()); },
         .should_stop = [&] { return first.step() == 5; }});
    Trainer second(config, wide_model(), data);
    second.load_state_dict(saved);
    second.run();
    EXPECT_EQ(difference(second.state_dict(), expected), "") << recipe;
  }
}

TEST(PresetTest, NetworkThatFp8CannotTakeIsRefusedWithTheReasons) {
  auto config = small_config();
  config.precision.preset = "fp8-mixed";
  EXPECT_ERROR(
      Trainer(config, linear_model(), quadrants()),
      ConfigError,
      "precision.preset: fp8-mixed runs linear layers in FP8, and the network "
      "has none that can; take bf16-mixed",
      "1.weight: ",
      "16");
}

} // namespace
} // namespace ampkit::zoo
