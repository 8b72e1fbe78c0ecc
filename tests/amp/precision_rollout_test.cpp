#include <ampkit/amp/precision_controller.h>

#include <ampkit/io/rng_state.h>

#include "amp/controlled_training.h"
#include "support/errors.h"

namespace ampkit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Training = ControlledTraining<ControlledNet>;
namespace nn = torch::nn;

PrecisionControllerOptions rollout_options(
    const PrecisionRolloutOptions& rollout) {
  auto options = quick_options();
  options.rollout = rollout;
  return options;
}

template <class Net>
bool check(ControlledTraining<Net>& training) {
  return training.controller->check_rollout(
      [&] { return training.scaler.scale(training.loss(training.batch)); });
}

template <class Net>
int roll_out(ControlledTraining<Net>& training, int steps) {
  int checks = 0;
  for (int i = 0; i < steps; ++i) {
    checks += static_cast<int>(check(training));
    EXPECT_TRUE(training.step());
  }
  return checks;
}

std::vector<std::string> dtypes(const PrecisionController& controller) {
  std::vector<std::string> result;
  for (const auto& entry : controller.modules().entries()) {
    result.push_back(
        entry.path + (entry.dtype == torch::kFloat ? " float32" : " low"));
  }
  return result;
}

TEST(PrecisionRolloutTest, AllLayersBeginInFloat32AndGoLowOneByOne) {
  Training training(rollout_options({.interval = 3}));
  EXPECT_EQ(training.controller->rollout_remaining(), 4);
  EXPECT_THAT(
      dtypes(*training.controller),
      ElementsAre(
          "first float32", "norm float32", "second float32", "head float32"));
  EXPECT_EQ(roll_out(training, 7), 2);
  EXPECT_THAT(
      dtypes(*training.controller),
      ElementsAre("first low", "norm low", "second float32", "head float32"));
  roll_out(training, 6);
  EXPECT_EQ(training.controller->rollout_remaining(), 0);
  EXPECT_THAT(
      training.moved(),
      ElementsAre("first down", "norm down", "second down", "head down"));
  const auto& move = training.controller->moves()[1];
  EXPECT_EQ(move.step, 6);
  EXPECT_THAT(move.reason, HasSubstr("within the bounds of float32: loss off"));
  EXPECT_THAT(move.reason, HasSubstr("(bound 0.01), gradient by"));
}

TEST(PrecisionRolloutTest, LayerThatLeavesTheBoundsStaysInFloat32) {
  for (const int64_t group : {1, 2, 3, 10}) {
    Training training(rollout_options({.interval = 2, .group = group}));
    multiply(training.net->first->weight, 1e6);
    roll_out(training, 30);
    EXPECT_EQ(training.controller->rollout_remaining(), 0);
    EXPECT_THAT(
        dtypes(*training.controller),
        ElementsAre("first float32", "norm low", "second low", "head low"))
        << group;
    multiply(training.net->first->weight, 1e-6);
    roll_out(training, 20); // it is remembered
    EXPECT_EQ(dtypes(*training.controller)[0], "first float32") << group;
    for (const auto& move : training.controller->moves()) {
      if (move.module == "first") {
        EXPECT_EQ(move.from, torch::kFloat);
        EXPECT_EQ(move.to, torch::kFloat);
        EXPECT_THAT(move.reason, HasSubstr("out of the bounds"));
      }
    }
  }
}

TEST(PrecisionRolloutTest, BoundsThatNothingKeepsLeaveProductsInFloat32) {
  Training training(rollout_options(
      {.interval = 1, .loss_bound = 1e-12, .gradient_bound = 1e-12}));
  roll_out(training, 6);
  EXPECT_EQ(training.controller->rollout_remaining(), 0);
  EXPECT_THAT(
      dtypes(*training.controller),
      ElementsAre( // the norm's input is float32, and so the norm
          "first float32",
          "norm low",
          "second float32",
          "head float32"));
}

TEST(PrecisionRolloutTest, GradientsThatTheScaleOverflowsAreNoFault) {
  Training training(
      rollout_options({.interval = 1}),
      {.init_scale = 0x1p26, .growth_interval = 1});
  for (int i = 0; i < 5; ++i) {
    check(training);
    training.step();
  }
  EXPECT_THAT(
      dtypes(*training.controller),
      ElementsAre("first low", "norm low", "second low", "head low"));
}

TEST(PrecisionRolloutTest, LayerThatLeavesTheBoundsLaterIsTakenBack) {
  auto options = rollout_options({.interval = 1});
  options.fail_window = 1000; // leave it to the roll-out
  Training training(options);
  roll_out(training, 5);
  ASSERT_EQ(training.controller->rollout_remaining(), 0);
  multiply(training.net->first->weight, 1e6);
  check(training);
  EXPECT_THAT(training.moved().back(), "first up");
  multiply(training.net->first->weight, 1e-6);
  roll_out(training, 10);
  EXPECT_THAT(training.moved().back(), "first up");
}

TEST(PrecisionRolloutTest, LayersWithARuleKeepTheirDtype) {
  auto options = rollout_options({.interval = 1});
  options.policy.set("norm", torch::kFloat).set("second", torch::kHalf);
  Training training(options);
  EXPECT_EQ(training.controller->rollout_remaining(), 2);
  roll_out(training, 6);
  EXPECT_THAT(training.moved(), ElementsAre("first down", "head down"));
}

struct RandomNet : nn::Module {
  RandomNet() {
    first = register_module("first", nn::Linear(32, 64));
    norm = register_module("norm", nn::BatchNorm1d(64));
    head = register_module("head", nn::Linear(64, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto hidden = norm->forward(first->forward(x));
    return head->forward(torch::dropout(torch::relu(hidden), 0.5, true));
  }
  nn::Linear first{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Linear head{nullptr};
};

TEST(PrecisionRolloutTest, CheckUsesTheSameRandomNumbersAndPutsAllBack) {
  ControlledTraining<RandomNet> training(rollout_options({.interval = 1}));
  training.step();
  training.optimizer.zero_grad();
  const auto random = io::rng_state().tensor("cpu").clone();
  const auto mean = training.net->norm->running_mean.clone();
  const auto batches = training.net->norm->num_batches_tracked.clone();
  EXPECT_TRUE(check(training)); // dropout of 0.5 would be out of bounds
  EXPECT_THAT(training.moved(), ElementsAre("first down"));
  EXPECT_TRUE(torch::equal(io::rng_state().tensor("cpu"), random));
  EXPECT_TRUE(torch::equal(training.net->norm->running_mean, mean));
  EXPECT_TRUE(torch::equal(training.net->norm->num_batches_tracked, batches));
  EXPECT_FALSE(training.net->first->weight.grad().defined());
  EXPECT_EQ(training.controller->statistics()[0].output_amax.size(), 1);
  EXPECT_TRUE(training.step());
}

TEST(PrecisionRolloutTest, ResumedRollOutGoesOnWhereItWas) {
  const auto moves = [](int swap_at) {
    const auto options = rollout_options({.interval = 2, .group = 2});
    Training training(options);
    multiply(training.net->first->weight, 1e6);
    for (int i = 0; i < 14; ++i) {
      if (i == swap_at) {
        const auto state = training.controller->state_dict();
        training.controller =
            std::make_unique<PrecisionController>(*training.net, options);
        training.controller->load_state_dict(state);
      }
      check(training);
      training.step();
    }
    return training.controller->moves();
  };
  const auto expected = moves(-1);
  EXPECT_EQ(expected.size(), 4);
  EXPECT_EQ(moves(3), expected);
  EXPECT_EQ(moves(6), expected);
}

TEST(PrecisionRolloutTest, WrongUsesAreErrorsAndMoveNothing) {
  Training plain;
  EXPECT_ERROR(check(plain), c10::Error, "no roll-out was asked for");
  Training training(rollout_options({.interval = 1}));
  training.step();
  auto& controller = *training.controller;
  EXPECT_ERROR(
      controller.check_rollout(
          [&] { return training.net->forward(training.batch).sum(); }),
      c10::Error,
      "ran no layer of this network");
  EXPECT_ERROR(
      controller.check_rollout(
          [&] { return training.loss(training.batch).detach(); }),
      c10::Error,
      "attached to its graph");
  EXPECT_ERROR(
      controller.check_rollout(
          []() -> at::Tensor { TORCH_CHECK(false, "bad batch"); }),
      c10::Error,
      "bad batch");
  EXPECT_EQ(controller.rollout_remaining(), 4);
  EXPECT_TRUE(controller.moves().empty());
  EXPECT_TRUE(check(training));
}

} // namespace
} // namespace ampkit
