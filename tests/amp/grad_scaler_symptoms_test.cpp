// What people suffer from with torch.amp.GradScaler and its like; a test is
// named after what they see. docs/symptoms.md lists them.

#include <ampkit/amp/grad_scaler.h>

#include <cmath>

#include <torch/torch.h>

#include "amp/scaled_training.h"
#include "support/errors.h"

namespace ampkit {
namespace {

class GradScalerSymptoms : public OnBothPaths {};

INSTANTIATE_TEST_SUITE_P(All, GradScalerSymptoms, ::testing::Bool(), path_name);

TEST_P(GradScalerSymptoms, ScaleDoesNotHalveForEver) {
  ScaledTraining t({.max_consecutive_faults = 0});
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      t.iterate(kNan, 1);
    }
  };
  EXPECT_ERROR(
      run(300),
      c10::Error,
      "200 iterations in a row were skipped",
      "the loss was inf or NaN",
      "'weight'");
  EXPECT_EQ(t.scaler.get_scale(), 65536.0); // no NaN loss lowered it
}

TEST_P(GradScalerSymptoms, ScaleAtItsMinimumSaysWhichParameterOverflowed) {
  ScaledTraining t({.max_consecutive_skips = 20});
  const auto run = [&] {
    for (int i = 0; i < 21; ++i) {
      t.overflow();
    }
  };
  EXPECT_ERROR(
      run(),
      c10::Error,
      "20 iterations in a row were skipped",
      "the loss was finite",
      "'weight' (",
      "of 2 values)",
      "the loss scale is now 1.");
}

TEST_P(GradScalerSymptoms, OneGoodBatchAfterManyBadOnesLeavesNoNan) {
  ScaledTraining t({.max_consecutive_skips = 0});
  for (int i = 0; i < 300; ++i) {
    t.overflow();
  }
  EXPECT_EQ(t.scaler.get_scale(), 1.0);
  EXPECT_TRUE(t.iterate(0, 1).stepped());
  EXPECT_TRUE(t.weight().equal(torch::tensor({{1.0F, 1.0F}}))) << t.weight();
}

TEST_P(GradScalerSymptoms, ScaleOfZeroPoisonsNoWeights) {
  ScaledTraining t({.init_scale = 1, .torch_exact = true}); // without a floor
  for (int i = 0; i < 300; ++i) {
    t.overflow();
  }
  EXPECT_EQ(t.scaler.get_scale(), 0.0);
  EXPECT_TRUE(t.iterate(0, 1).skipped());
  EXPECT_TRUE(t.weight().equal(torch::tensor({{1.0F, 2.0F}}))) << t.weight();
}

TEST_P(GradScalerSymptoms, StepSaysThatItSkippedWhereTheScaleDoesNotTell) {
  const std::vector<GradScalerOptions> scale_stays{
      {.init_scale = 4, .min_scale = 4},
      {.init_scale = 4, .hysteresis = 2},
      {.init_scale = 4, .dynamic = false}};
  for (const auto& options : scale_stays) {
    ScaledTraining t(options);
    EXPECT_TRUE(t.iterate(0, 1).stepped());
    EXPECT_TRUE(t.overflow().skipped());
    EXPECT_EQ(t.scaler.get_scale(), 4.0);
    EXPECT_EQ(t.scaler.steps_taken(), 1);
    EXPECT_EQ(t.scaler.steps_skipped(), 1);
  }
}

TEST_P(
    GradScalerSymptoms, NoGradientsSaysWhetherTheOptimizerHoldsOtherTensors) {
  ScaledTraining t;
  t.scaler.scale(torch::ones({})); // a detached loss
  EXPECT_ERROR(
      t.scaler.step(t.sgd),
      c10::Error,
      "0 of 1 parameters have gradients",
      "was the loss detached",
      "allow_no_grad");
  t.net->weight.set_requires_grad(false);
  EXPECT_ERROR(t.scaler.step(t.sgd), c10::Error, "(1 are frozen)");
  const torch::nn::Linear replaced(2, 1);
  torch::optim::SGD other(replaced->parameters(), 1.0);
  EXPECT_ERROR(
      t.scaler.step(other),
      c10::Error,
      "0 of 2 parameters",
      "none of them is a parameter of the module");
}

TEST_P(GradScalerSymptoms, StepsWithoutGradientsDoNotGrowTheScale) {
  ScaledTraining t({.init_scale = 4, .growth_interval = 2});
  t.iterate(0, 1);
  t.sgd.zero_grad();
  t.scaler.scale(torch::ones({}));
  const auto result = t.scaler.step(t.sgd, {.allow_no_grad = true});
  EXPECT_EQ(result.reason(), SkipReason::no_gradient);
  EXPECT_EQ(t.scaler.state_dict().integer("_growth_tracker"), 1);
  EXPECT_EQ(t.scaler.steps_taken(), 1);
  t.iterate(0, 1);
  EXPECT_EQ(t.scaler.get_scale(), 8.0);
}

TEST_P(GradScalerSymptoms, SkippingStepAfterUnscaleDoesNotBreakTheNextOne) {
  ScaledTraining with({.init_scale = 4});
  ScaledTraining without({.init_scale = 4});
  for (int i = 0; i < 5; ++i) {
    if (i == 2) { // a batch whose gradients the loop does not like
      with.sgd.zero_grad();
      with.scaler.scale(with.loss(kNan, 100)).backward();
      with.scaler.unscale_(with.sgd);
      with.scaler.abandon();
    }
    EXPECT_TRUE(with.iterate(0.25F, 0.5F).stepped());
    EXPECT_TRUE(without.iterate(0.25F, 0.5F).stepped());
  }
  EXPECT_TRUE(with.weight().equal(without.weight()));
  EXPECT_EQ(
      with.scaler.state_dict().integer("_growth_tracker"),
      without.scaler.state_dict().integer("_growth_tracker"));
}

TEST_P(GradScalerSymptoms, SecondUpdateWithoutAStepIsAnError) {
  ScaledTraining t;
  t.iterate(0, 1);
  EXPECT_ERROR(t.scaler.update(), c10::Error, "since the last update()");
  EXPECT_EQ(t.scaler.state_dict().integer("_growth_tracker"), 1);
}

TEST_P(GradScalerSymptoms, TinyLossesDoNotGrowTheScaleToInfinity) {
  ScaledTraining t({.growth_interval = 1});
  for (int i = 0; i < 400; ++i) {
    t.iterate(0, 0);
  }
  EXPECT_EQ(t.scaler.get_scale(), 0x1p127);
  const float tiny = 0x1p-120F;
  t.sgd.zero_grad();
  t.scaler.scale(t.loss(0, tiny)).backward();
  EXPECT_TRUE(t.scaler.step(t.sgd).stepped());
  EXPECT_EQ(t.net->weight.grad()[0][1].item<float>(), tiny);
}

TEST_P(GradScalerSymptoms, LoadingCallsNoStepAndNeedsNoFirstScale) {
  ScaledTraining t({.init_scale = 4, .growth_interval = 3});
  t.iterate(0, 1);
  const auto state = t.scaler.state_dict();
  GradScaler loaded({.growth_interval = 3});
  loaded.load_state_dict(state);
  EXPECT_EQ(loaded.get_scale(), 4.0);
  EXPECT_EQ(loaded.state_dict().integer("_growth_tracker"), 1);
  // The first call after a resume is not an assertion about a missing tensor.
  EXPECT_ERROR(loaded.unscale_(t.sgd), c10::Error, "call scale(loss)");
  EXPECT_EQ(loaded.scale(torch::ones({})).item<float>(), 4.0F);
}

TEST_P(GradScalerSymptoms, StateOfADisabledScalerIsRefusedByAnEnabledOne) {
  ScaledTraining t({.init_scale = 4});
  const GradScaler disabled({.enabled = false});
  EXPECT_ERROR(
      t.scaler.load_state_dict(disabled.state_dict()),
      c10::Error,
      "the state is empty, as that of a disabled scaler is");
  EXPECT_EQ(t.scaler.get_scale(), 4.0);
  GradScaler other({.enabled = false});
  other.load_state_dict(t.scaler.state_dict()); // nothing to do, no error
  EXPECT_TRUE(other.state_dict().empty());
}

TEST_P(GradScalerSymptoms, Bf16ParametersTrainUnderAScaler) {
  auto weight = torch::zeros({2}, torch::kBFloat16).requires_grad_();
  torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 4});
  const std::vector<float> values{4.0F, kNan, -kInf};
  for (const float value : values) {
    scaler.scale(torch::ones({}));
    weight.mutable_grad() = torch::tensor({4.0F, value}).to(torch::kBFloat16);
    EXPECT_EQ(scaler.step(sgd).stepped(), std::isfinite(value)) << value;
    scaler.update();
  }
  EXPECT_TRUE(weight.equal(torch::full({2}, -1.0F).to(torch::kBFloat16)));
}

TEST_P(GradScalerSymptoms, OneFp16ParameterAmongFp32OnesIsNamed) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  auto& stray = net->at<torch::nn::LinearImpl>(1).bias;
  stray.set_data(stray.detach().to(torch::kHalf));
  torch::optim::SGD sgd(net->parameters(), 1.0);
  GradScaler scaler;
  scaler.name_parameters(*net);
  scaler.scale(torch::ones({}));
  for (const auto& parameter : net->parameters()) {
    parameter.mutable_grad() = torch::ones_like(parameter);
  }
  EXPECT_ERROR(
      scaler.step(sgd),
      c10::Error,
      "'1.bias' (Half [2])",
      "keep FP32 parameters",
      "masters");
  for (const auto& parameter : net->parameters()) {
    EXPECT_TRUE(parameter.grad().equal(torch::ones_like(parameter)));
  }
}

TEST_P(GradScalerSymptoms, ManyFp16ParametersAreListedAndTheRestCounted) {
  torch::nn::Sequential net;
  for (int i = 0; i < 3; ++i) {
    net->push_back(torch::nn::Linear(2, 2));
  }
  net->to(torch::kHalf);
  torch::optim::SGD sgd(net->parameters(), 1.0);
  GradScaler scaler;
  scaler.name_parameters(*net);
  scaler.scale(torch::ones({}));
  for (const auto& parameter : net->parameters()) {
    parameter.mutable_grad() = torch::ones_like(parameter);
  }
  EXPECT_ERROR(
      scaler.unscale_(sgd), c10::Error, "'0.weight'", "'1.bias'", "and 2 more");
}

TEST_P(GradScalerSymptoms, ClosuresThatLbfgsNeedsAreRefusedWithTheReason) {
  ScaledTraining t;
  torch::optim::LBFGS lbfgs(t.net->parameters());
  bool called = false;
  const auto closure = [&] {
    called = true;
    return torch::ones({});
  };
  t.scaler.scale(t.loss(1, 1)).backward();
  EXPECT_ERROR(
      t.scaler.step(lbfgs, {.closure = closure}),
      c10::Error,
      "LBFGS computes gradients inside step(), many times",
      "disabled scaler");
  EXPECT_FALSE(called);
}

TEST_P(GradScalerSymptoms, OptimizersOtherThanLbfgsTakeAClosure) {
  ScaledTraining t({.init_scale = 4});
  int calls = 0;
  const auto closure = [&] {
    ++calls;
    t.sgd.zero_grad();
    const auto loss = t.loss(0, 1);
    t.scaler.scale(loss).backward();
    return loss;
  };
  const torch::NoGradGuard outside;
  EXPECT_TRUE(t.scaler.step(t.sgd, {.closure = closure}).stepped());
  t.scaler.update();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(t.weight().equal(torch::tensor({{1.0F, 1.0F}})));
}

TEST_P(GradScalerSymptoms, DisabledScalerHandsLbfgsItsClosure) {
  ScaledTraining t;
  GradScaler disabled({.enabled = false});
  torch::optim::LBFGS lbfgs(t.net->parameters());
  const auto closure = [&] {
    lbfgs.zero_grad();
    const auto loss = (t.net->weight - 5).square().sum();
    loss.backward();
    return loss;
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(disabled.step(lbfgs, {.closure = closure}).stepped());
  }
  EXPECT_TRUE(t.weight().allclose(torch::full({1, 2}, 5.0F))) << t.weight();
  EXPECT_ERROR(
      disabled.step(lbfgs, {.max_norm = 1.0}), c10::ValueError, "max_norm");
}

TEST_P(GradScalerSymptoms, NanIsFoundInEveryDtypeThatAGradientCanHave) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      auto weight = torch::zeros({5}, dtype).requires_grad_();
      torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1.0));
      GradScaler scaler;
      scaler.scale(torch::ones({}));
      weight.mutable_grad() =
          torch::tensor({1.0F, 1.0F, 1.0F, bad, 1.0F}).to(dtype);
      const auto result = scaler.step(sgd);
      EXPECT_TRUE(result.skipped()) << dtype << bad;
      ASSERT_EQ(result.non_finite().size(), 1);
      EXPECT_EQ(result.non_finite()[0].elements, 1);
      EXPECT_EQ(result.non_finite()[0].size, 5);
      EXPECT_TRUE(weight.equal(torch::zeros({5}, dtype)));
    }
  }
}

TEST_P(GradScalerSymptoms, GradientsOfDtypesWithoutAFiniteCheckAreRefused) {
  for (const auto dtype :
       {torch::kFloat8_e5m2, torch::kFloat8_e4m3fn, torch::kComplexFloat}) {
    auto weight = torch::zeros({2}, dtype).requires_grad_();
    torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1.0));
    GradScaler scaler;
    scaler.scale(torch::ones({}));
    weight.mutable_grad() = torch::zeros({2}, dtype);
    const char* message = "inf and NaN can't be found";
    EXPECT_ERROR(
        scaler.step(sgd), c10::Error, "parameter 0 of group 0", message);
    EXPECT_ERROR(scaler.unscale_(sgd), c10::Error, message);
  }
}

TEST_P(GradScalerSymptoms, SparseGradientsOfAnEmbeddingAreChecked) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 1).sparse(true));
  torch::optim::SGD sgd(table->parameters(), torch::optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 4});
  {
    const torch::NoGradGuard no_grad;
    table->weight.zero_();
  }
  const auto iterate = [&](int64_t row, float factor) {
    sgd.zero_grad();
    const auto out = table->forward(torch::tensor({row, row}));
    scaler.scale((out * factor).sum()).backward();
    const auto result = scaler.step(sgd);
    scaler.update();
    return result;
  };
  EXPECT_TRUE(iterate(1, 1).stepped());
  EXPECT_EQ(iterate(2, 1e38F).reason(), SkipReason::overflow); // times 4
  EXPECT_EQ(scaler.get_scale(), 2.0);
  EXPECT_TRUE(
      table->weight.flatten().equal(torch::tensor({0.0F, -2.0F, 0.0F, 0.0F})))
      << table->weight;
}

} // namespace
} // namespace ampkit
