#include "train/updater.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "support/errors.h"
#include "train/parameters.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

/// One step of SGD(lr = 1) on the linear model with the gradients {3, -4, 0,
/// ...} of its weight and {12, 0, ...} of its bias: how far the weight moved.
at::Tensor movement(const std::function<void(OptimizerConfig&)>& change) {
  auto config = small_config();
  config.optimizer.name = "sgd";
  config.optimizer.lr = 1;
  config.optimizer.momentum = 0;
  config.optimizer.weight_decay = 0;
  change(config.optimizer);
  const auto model = linear_model();
  Updater updater(config, Precision::fp32(), *model.module, 10);
  const auto parameters = model.module->parameters();
  for (const auto& parameter : parameters) {
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  auto grad = parameters.at(0).grad().view(-1);
  grad[0] = 3;
  grad[1] = -4;
  parameters.at(1).grad()[0] = 12;
  const auto before = parameters.at(0).detach().clone();
  GradScaler scaler({.enabled = false});
  EXPECT_TRUE(updater.step(scaler).stepped());
  EXPECT_FALSE(parameters.at(0).grad().defined());
  return (before - parameters.at(0).detach()).view(-1).slice(0, 0, 2);
}

void expect_near(const at::Tensor& found, const std::vector<double>& expected) {
  EXPECT_TRUE(
      found.allclose(torch::tensor(expected, torch::kFloat), 1e-5, 1e-6))
      << found;
}

TEST(UpdaterTest, ClipsByTheNormThatIsAskedFor) {
  expect_near(movement([](auto&) {}), {3, -4});
  expect_near(movement([](auto& o) { o.max_norm = 6.5; }), {1.5, -2});
  expect_near(
      movement([](auto& o) {
        o.max_norm = 9.5; // of 3 + 4 + 12
        o.norm_type = 1;
      }),
      {1.5, -2});
  expect_near(
      movement([](auto& o) {
        o.max_norm = 3;
        o.norm_type = INFINITY;
      }),
      {0.75, -1});
}

TEST(UpdaterTest, ClipsByValueAndThenByNormFirst) {
  expect_near(movement([](auto& o) { o.clip_value = 3.5; }), {3, -3.5});
  expect_near(
      movement([](auto& o) {
        o.max_norm = 6.5;
        o.clip_value = 1.75;
      }),
      {1.5, -1.75});
}

// A row of the weight has a norm below 1: its gradient of norm 5 is clipped.
TEST(UpdaterTest, ClipsAdaptivelyByTheNormsOfTheWeights) {
  const auto row = linear_model().module->parameters().at(0).detach()[0];
  const double limit = 0.01 * row.norm().item<double>();
  expect_near(
      movement([](auto& o) { o.clip_factor = 0.01; }),
      {0.6 * limit, -0.8 * limit});
  expect_near(
      movement([](auto& o) {
        o.clip_factor = 0.01;
        o.clip_eps = 100; // weights count as this
      }),
      {0.6, -0.8});
}

TEST(UpdaterTest, AdaptiveClippingGoesWithNoOther) {
  for (const bool by_norm : {true, false}) {
    EXPECT_ERROR(
        movement([&](auto& o) {
          o.clip_factor = 0.01;
          (by_norm ? o.max_norm : o.clip_value) = 1;
        }),
        ConfigError,
        "optimizer.clip_factor: adaptive clipping does not go together with");
  }
}

// Muon and its AdamW step together or not at all, each with its own rate.
TEST(UpdaterTest, MuonAndItsAdamwAreOne) {
  auto config = small_config();
  config.optimizer.name = "muon";
  config.optimizer.lr = 0.5;
  config.optimizer.adamw_lr = 0.25;
  config.schedule.name = "linear";
  config.schedule.final_factor = 0.5;
  const auto model = linear_model();
  Updater updater(config, Precision::fp16_mixed(), *model.module, 10);
  const auto parameters = model.module->parameters();
  GradScaler scaler({.init_scale = 4});
  const auto step = [&](double bias_gradient) {
    scaler.scale(torch::ones({}));
    parameters.at(0).mutable_grad() = torch::ones_like(parameters.at(0));
    parameters.at(1).mutable_grad() =
        torch::full_like(parameters.at(1), bias_gradient);
    const auto result = updater.step(scaler);
    scaler.update();
    return updater.advance(result);
  };
  const auto before = parameters.at(0).detach().clone();
  EXPECT_FALSE(step(INFINITY));
  EXPECT_TRUE(parameters.at(0).equal(before));
  EXPECT_EQ(updater.learning_rate(), 0.5);
  EXPECT_TRUE(step(1));
  EXPECT_FALSE(parameters.at(0).equal(before));
  EXPECT_NEAR(updater.learning_rate(), 0.475, 1e-12);
  io::StateDict state;
  updater.save_to(state);
  EXPECT_EQ(state.text("optimizer.optimizer"), "Muon");
  EXPECT_EQ(state.text("adamw.optimizer.optimizer"), "AdamW");
  EXPECT_NEAR(state.real("adamw.optimizer.group.0.lr"), 0.2375, 1e-12);
}

// Stopped in the middle of an epoch, after an evaluation that let the rate fall
// and before one.
void expect_resumes(const RunConfig& config) {
  const auto what = config.optimizer.name + ", " + config.schedule.name + ", " +
                    config.precision.preset;
  const auto data = quadrants();
  Trainer whole(config, linear_model(), data);
  whole.run();
  const auto expected = frozen(whole.state_dict());
  for (const int64_t stop : {3, 8, 13}) {
    io::StateDict saved;
    {
      Trainer first(config, linear_model(), data);
      first.run(
          {.on_checkpoint = [&](auto) { saved = frozen(first.state_dict()); },
           .should_stop = [&] { return first.step() == stop; }});
    }
    Trainer second(config, linear_model(), data);
    second.load_state_dict(saved);
    second.run();
    EXPECT_EQ(difference(second.state_dict(), expected), "")
        << what << ", stopped at " << stop;
  }
}

RunConfig resumable_config() {
  auto config = small_config();
  config.schedule.warmup = 0.2;
  config.schedule.patience = 0;
  config.schedule.threshold = 10; // no loss is ever better
  config.schedule.cycle_momentum = false;
  return config;
}

TEST(UpdaterTest, RunsUnderEveryScheduleResumeBitForBit) {
  for (const auto& name : schedule_names()) {
    auto config = resumable_config();
    config.schedule.name = name;
    expect_resumes(config);
  }
}

TEST(UpdaterTest, RunsOfEveryOptimizerResumeBitForBit) {
  for (const auto& name : optimizer_names()) {
    auto config = resumable_config();
    config.optimizer.name = name;
    config.schedule.name = "plateau";
    expect_resumes(config);
  }
}

TEST(UpdaterTest, RunsInEveryPresetResumeBitForBit) {
  for (const auto& name : trainable_presets()) {
    if (name == "fp8-mixed") {
      continue; // needs larger layers: PresetTest
    }
    auto config = resumable_config();
    config.precision.preset = name;
    config.schedule.name = "one-cycle";
    expect_resumes(config);
  }
}

} // namespace
} // namespace ampkit::zoo
