#include <ampkit/amp/precision_controller.h>

#include <torch/script.h>

#include "amp/controlled_training.h"
#include "support/errors.h"

namespace ampkit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Training = ControlledTraining<ControlledNet>;
namespace nn = torch::nn;

TEST(PrecisionControllerTest, OverflowingLayerMovesToFloat32AndTrainingGoesOn) {
  Training training;
  EXPECT_EQ(training.steps(3), 3);
  multiply(training.net->first->weight, 1e6);
  EXPECT_EQ(training.steps(2), 0); // its fail window
  EXPECT_EQ(training.steps(10), 10);
  EXPECT_THAT(training.moved(), ElementsAre("first up"));
  const auto& move = training.controller->moves()[0];
  EXPECT_EQ(move.step, 4);
  EXPECT_EQ(move.from, torch::kHalf);
  EXPECT_THAT(move.reason, HasSubstr("output: "));
  EXPECT_THAT(move.reason, HasSubstr("of 1024 elements are inf or NaN"));
  EXPECT_EQ(training.controller->statistics()[0].dtype, torch::kFloat);
}

TEST(PrecisionControllerTest, LayerComesBackWhenCleanAndLaterEachTime) {
  Training training;
  for (const int window : {3, 6, 12}) {
    multiply(training.net->first->weight, 1e6);
    training.steps(2);
    EXPECT_EQ(training.moved().back(), "first up");
    training.steps(20); // the plant is still there
    EXPECT_EQ(training.moved().back(), "first up");
    multiply(training.net->first->weight, 1e-6);
    training.steps(window - 1);
    EXPECT_EQ(training.moved().back(), "first up");
    training.steps(1);
    EXPECT_EQ(training.moved().back(), "first down");
    EXPECT_THAT(
        training.controller->moves().back().reason,
        HasSubstr(c10::str("clean for ", window, " observed steps")));
  }
  EXPECT_EQ(training.controller->moves().size(), 6);
}

TEST(PrecisionControllerTest, CleanWindowStopsGrowingAtItsLimit) {
  auto options = quick_options();
  options.max_clean_window = 4;
  Training training(options);
  for (int i = 0; i < 4; ++i) {
    multiply(training.net->first->weight, 1e6);
    training.steps(2);
    multiply(training.net->first->weight, 1e-6);
    training.steps(4);
    EXPECT_EQ(training.moved().back(), "first down") << i;
  }
}

TEST(
    PrecisionControllerTest, SkippedStepIsFollowedByAFullLookWhateverInterval) {
  Training training({.sample_interval = 1000, .sample_elements = 1});
  training.step();
  EXPECT_FALSE(training.controller->observing());
  multiply(training.net->first->weight, 1e6);
  // One that nobody sees, and a fail window of three.
  EXPECT_EQ(training.steps(4), 0);
  EXPECT_THAT(training.moved(), ElementsAre("first up"));
  EXPECT_EQ(training.steps(5), 5);
}

TEST(PrecisionControllerTest, ReaderOfWhat16BitsDoNotHoldMovesToo) {
  Training training;
  training.freeze();
  multiply(training.net->norm->weight, 1e6);
  multiply(training.net->second->weight, 1e-6);
  training.steps(10);
  EXPECT_THAT(training.moved(), ElementsAre("norm up", "second up"));
  training.steps(20);
  EXPECT_EQ(training.moved().size(), 2); // neither comes back
}

TEST(PrecisionControllerTest, LayerThatThePolicyKeepsInFloat32DoesNotMove) {
  Training training;
  training.freeze();
  training.ops = OpPolicy::strict();
  multiply(training.net->norm->weight, 1e6);
  multiply(training.net->second->weight, 1e-6);
  EXPECT_EQ(training.steps(10), 8);
  EXPECT_THAT(training.moved(), ElementsAre("second up"));
}

struct ConvNet : nn::Module {
  ConvNet() {
    conv = register_module("conv", nn::Conv2d(2, 16, 3));
    norm = register_module("norm", nn::GroupNorm(4, 16));
    head = register_module("head", nn::Linear(16, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = norm->forward(conv->forward(x.reshape({16, 2, 4, 4})));
    return head->forward(torch::relu(y).mean({2, 3}));
  }
  nn::Conv2d conv{nullptr};
  nn::GroupNorm norm{nullptr};
  nn::Linear head{nullptr};
};

TEST(PrecisionControllerTest, OverflowingConvolutionMovesAndComesBack) {
  ControlledTraining<ConvNet> training;
  training.ops = OpPolicy::strict();
  multiply(training.net->conv->weight, 1e6);
  EXPECT_EQ(training.steps(6), 4);
  multiply(training.net->conv->weight, 1e-6);
  training.steps(3);
  EXPECT_THAT(training.moved(), ElementsAre("conv up", "conv down"));
}

TEST(PrecisionControllerTest, OverflowsThatTheScalerCuresMoveNothing) {
  Training training(quick_options(), {.init_scale = 0x1p24});
  const int taken = training.steps(20);
  EXPECT_LT(taken, 17); // it did overflow, more than fail_window times
  EXPECT_GT(taken, 12); // but less than overflow_patience
  EXPECT_THAT(training.moved(), IsEmpty());
}

TEST(PrecisionControllerTest, OverflowsThatBackingOffDoesNotCureMoveLayers) {
  Training training(
      quick_options(), {.init_scale = 0x1p40, .min_scale = 0x1p40});
  EXPECT_EQ(training.steps(7), 0);
  EXPECT_THAT(training.moved(), IsEmpty());
  training.steps(10);
  EXPECT_EQ(training.moved().front(), "head up");
  EXPECT_THAT(
      training.controller->moves()[0].reason,
      HasSubstr("after 8 skipped steps in a row"));
  EXPECT_TRUE(training.step());
}

TEST(PrecisionControllerTest, WithoutAScalerOverflowingGradientsAreAFailure) {
  Training training;
  training.loss_factor = 0x1p40;
  const auto step = [&] {
    training.loss(training.batch).backward();
    training.controller->update();
  };
  step();
  EXPECT_THAT(training.moved(), IsEmpty());
  step();
  EXPECT_THAT(training.moved(), ElementsAre("head up"));
}

TEST(PrecisionControllerTest, GradientsThatUnderflowMoveLayers) {
  Training training(
      quick_options(), {.init_scale = 0x1p-21, .min_scale = 0x1p-30});
  training.steps(2);
  ASSERT_FALSE(training.moved().empty());
  for (const auto& move : training.controller->moves()) {
    EXPECT_EQ(move.to, torch::kFloat);
    EXPECT_THAT(move.reason, HasSubstr("underflow"));
  }
  training.steps(10); // float32 sees what 16 bits would lose
  EXPECT_THAT(training.moved(), testing::Contains("head up"));
  EXPECT_GT(training.controller->statistics()[3].output_gradient.underflow, .5);
  EXPECT_THAT(training.moved(), testing::Not(testing::Contains("head down")));
}

TEST(PrecisionControllerTest, GradientThatIsZeroInFloat32TooIsNoLoss) {
  Training training;
  training.loss_factor = 0;
  training.steps(60);
  EXPECT_THAT(training.moved(), testing::Contains("head up"));
  EXPECT_THAT(training.moved(), testing::Contains("head down"));
  const auto moves = training.moved().size();
  EXPECT_LE(moves, 8);
  training.steps(60);
  EXPECT_EQ(training.moved().size(), moves); // it knows by now
}

TEST(PrecisionControllerTest, InfinitiesThatDoNoHarmMoveNothing) {
  Training training;
  {
    const torch::NoGradGuard no_grad; // relu makes zeros of them
    training.net->second->bias.slice(0, 0, 4).fill_(
        -std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(training.steps(10), 10);
  EXPECT_THAT(training.moved(), IsEmpty());
  EXPECT_GT(training.controller->statistics()[2].output.overflow, 0);
}

TEST(PrecisionControllerTest, LayersWithARuleStay) {
  auto options = quick_options();
  options.policy.set("first", torch::kHalf).set("head", torch::kFloat);
  Training training(options, {.max_consecutive_faults = 0});
  multiply(training.net->first->weight, 1e6);
  EXPECT_EQ(training.steps(10), 0);
  EXPECT_THAT(training.moved(), testing::Not(testing::Contains("first up")));
  EXPECT_EQ(training.controller->statistics()[3].dtype, torch::kFloat);
}

TEST(PrecisionControllerTest, ScriptedModuleIsWatchedThroughItsParameters) {
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  torch::manual_seed(1);
  torch::jit::Module layer("layer");
  const auto weight = (torch::randn({64, 32}) * 0.1).requires_grad_();
  layer.register_parameter("weight", weight, false);
  layer.define(
      "def forward(self, x):\n"
      "  return torch.matmul(x, self.weight.t())\n");
  torch::jit::Module net("net");
  net.register_module("layer", layer);
  net.define(
      "def forward(self, x):\n"
      "  y = self.layer.forward(x)\n"
      "  return y / y.abs().max()\n");
  PrecisionController controller(net, quick_options());
  const auto step = [&] {
    at::Tensor loss;
    {
      const Autocast autocast(
          torch::kCPU, torch::kHalf, {.modules = controller.modules()});
      const auto y = net.forward({torch::randn({16, 32})}).toTensor();
      loss = y.to(torch::kFloat).square().sum();
    }
    loss.backward();
    controller.update();
    return loss.item<float>();
  };
  step();
  EXPECT_THAT(controller.moves(), IsEmpty());
  multiply(weight, 1e7);
  step();
  EXPECT_TRUE(std::isnan(step()));
  EXPECT_TRUE(std::isfinite(step()));
  ASSERT_EQ(controller.moves().size(), 1);
  EXPECT_EQ(controller.moves()[0].module, "layer");
  EXPECT_EQ(controller.statistics()[0].output_amax.size(), 4);
}

TEST(PrecisionControllerTest, StatisticsSayWhatTheLastObservedStepSaw) {
  auto options = quick_options();
  options.amax_history_len = 3;
  Training training(options);
  training.steps(5);
  const auto seen = training.controller->statistics();
  ASSERT_EQ(seen.size(), 4);
  EXPECT_EQ(seen[0].module, "first");
  EXPECT_EQ(seen[0].dtype, torch::kHalf);
  EXPECT_EQ(seen[0].output.elements, 16 * 64);
  EXPECT_EQ(seen[0].output.overflow, 0);
  EXPECT_EQ(seen[0].output_gradient.elements, 16 * 64);
  // Weights are sampled, at every third element of 2048; and 64 biases.
  EXPECT_EQ(seen[0].parameter_gradient.elements, 683 + 64);
  EXPECT_EQ(seen[0].output_amax.size(), 3);
  EXPECT_EQ(seen[0].output_amax[2], seen[0].output.amax);
  EXPECT_EQ(seen[0].gradient_amax[2], seen[0].output_gradient.amax);
}

TEST(PrecisionControllerTest, OnlySampledStepsWithGradientsAreObserved) {
  Training training({.sample_interval = 3});
  std::vector<bool> observed;
  for (int i = 0; i < 7; ++i) {
    observed.push_back(training.controller->observing());
    const torch::NoGradGuard no_grad;
    training.loss(training.batch);
    training.controller->update();
  }
  EXPECT_THAT(
      observed, ElementsAre(true, false, false, true, false, false, true));
  EXPECT_EQ(training.controller->statistics()[0].output.elements, 0);
}

TEST(PrecisionControllerTest, EndOfTheControllerLeavesTheNetworkAlone) {
  Training training;
  const auto modules = training.controller->modules();
  training.step();
  auto loss = training.loss(training.batch); // hooks wait in its graph
  training.controller.reset();
  loss.backward();
  const Autocast autocast(torch::kCPU, torch::kHalf, {.modules = modules});
  training.net->forward(training.batch).sum().backward();
  EXPECT_TRUE(training.net->first->weight.grad().defined());
}

TEST(PrecisionControllerTest, EachMoveIsReportedAndBecomesARow) {
  std::vector<PrecisionMove> heard;
  auto options = quick_options();
  options.on_move = [&](const PrecisionMove& move) { heard.push_back(move); };
  Training training(options);
  multiply(training.net->first->weight, 1e6);
  training.steps(3);
  EXPECT_EQ(heard, training.controller->moves());
  const auto row = to_row(heard.at(0));
  EXPECT_EQ(row.integer("step"), 1);
  EXPECT_EQ(row.text("module"), "first");
  EXPECT_EQ(row.text("from"), "Half");
  EXPECT_EQ(row.text("to"), "Float");
}

} // namespace
} // namespace ampkit
