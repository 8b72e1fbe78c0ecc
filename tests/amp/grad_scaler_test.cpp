#include <ampkit/amp/grad_scaler.h>

#include <cmath>
#include <utility>

#include <torch/torch.h>

#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit {
namespace {

/// One fp32 weight [2] = {1, 2} under a stock SGD(lr = 1); the test sets its
/// (scaled) gradient.
class GradScalerTest : public ::testing::Test {
 protected:
  void set_grad(float first, float second) {
    weight_.mutable_grad() = torch::tensor({first, second});
  }
  StepResult iterate(float first, float second) {
    scaler_.scale(torch::ones({}));
    set_grad(first, second);
    const StepResult result = scaler_.step(sgd_);
    scaler_.update();
    return result;
  }

  torch::Tensor weight_ = torch::tensor({1.0F, 2.0F}).requires_grad_();
  torch::optim::SGD sgd_{{weight_}, torch::optim::SGDOptions(1.0)};
  GradScaler scaler_{{.init_scale = 4.0, .growth_interval = 2}};
};

TEST_F(GradScalerTest, StepAppliesTheUnscaledGradient) {
  EXPECT_TRUE(iterate(4, 8).stepped());
  EXPECT_TRUE(weight_.equal(torch::tensor({0.0F, 0.0F}))) << weight_;
  EXPECT_EQ(scaler_.steps_taken(), 1);
}

TEST_F(GradScalerTest, OverflowSkipsTheStepAndHalvesTheScale) {
  EXPECT_TRUE(iterate(1, kInf).skipped());
  EXPECT_EQ(scaler_.get_scale(), 2.0);
  EXPECT_TRUE(weight_.equal(torch::tensor({1.0F, 2.0F}))) << weight_;
  EXPECT_EQ(scaler_.steps_taken(), 0);
  EXPECT_EQ(scaler_.steps_skipped(), 1);
}

TEST_F(GradScalerTest, ScaleGrowsAfterTheIntervalAndOverflowRestartsTheCount) {
  iterate(1, 1);
  iterate(1, kNan);
  EXPECT_EQ(scaler_.get_scale(), 2.0);
  iterate(1, 1);
  EXPECT_EQ(scaler_.get_scale(), 2.0);
  iterate(1, 1);
  EXPECT_EQ(scaler_.get_scale(), 4.0);
}

TEST_F(GradScalerTest, TiedWeightListedTwiceIsUnscaledOnce) {
  torch::optim::SGD twice({weight_, weight_}, torch::optim::SGDOptions(1.0));
  scaler_.scale(torch::ones({}));
  set_grad(4, 8);
  scaler_.unscale_(twice);
  EXPECT_TRUE(weight_.grad().equal(torch::tensor({1.0F, 2.0F})));
}

TEST_F(GradScalerTest, ScaleHasAFloorSoThatNoGoodStepIsPoisoned) {
  for (int i = 0; i < 100; ++i) {
    iterate(kNan, kNan);
  }
  EXPECT_EQ(scaler_.get_scale(), 1.0);
  EXPECT_TRUE(iterate(1, 1).stepped());
  EXPECT_TRUE(weight_.isfinite().all().item<bool>()) << weight_;
}

TEST_F(GradScalerTest, ScaleStaysFiniteUnderEndlessGrowth) {
  GradScaler scaler({.init_scale = 4.0, .growth_interval = 1});
  for (int i = 0; i < 400; ++i) {
    scaler.scale(torch::ones({}));
    set_grad(0, 0);
    scaler.step(sgd_);
    scaler.update();
  }
  EXPECT_EQ(scaler.get_scale(), std::ldexp(1.0, 127));
  const auto scaled = scaler.scale(torch::tensor(std::ldexp(1.0F, -126)));
  EXPECT_EQ(scaled.item<float>(), 2.0F);
}

TEST_F(GradScalerTest, GradientThatOverflowsWhenUnscaledIsSkipped) {
  GradScaler scaler({.init_scale = 0x1p-10, .min_scale = 0x1p-20});
  scaler.scale(torch::ones({}));
  set_grad(1, 1e37F); // times 1024 is beyond FP32
  EXPECT_TRUE(scaler.step(sgd_).skipped());
  EXPECT_TRUE(weight_.equal(torch::tensor({1.0F, 2.0F}))) << weight_;
}

TEST_F(GradScalerTest, UnscaleFirstGivesTheSameStep) {
  scaler_.scale(torch::ones({}));
  set_grad(4, 8);
  scaler_.unscale_(sgd_);
  EXPECT_TRUE(weight_.grad().equal(torch::tensor({1.0F, 2.0F})));
  EXPECT_TRUE(scaler_.step(sgd_).stepped());
  EXPECT_TRUE(weight_.equal(torch::tensor({0.0F, 0.0F}))) << weight_;
}

TEST_F(GradScalerTest, ClippingActsOnTheUnscaledNormAndReportsIt) {
  scaler_.scale(torch::ones({}));
  set_grad(12, 16); // unscaled 3, 4: norm 5
  const StepResult result = scaler_.step(sgd_, {.max_norm = 2.5});
  EXPECT_EQ(result.grad_norm(), 5.0);
  // torch's factor is 2.5 / (5 + 1e-6)
  EXPECT_TRUE(weight_.allclose(torch::tensor({1 - 1.5F, 2 - 2.0F}), 0, 1e-6))
      << weight_;
}

TEST_F(GradScalerTest, ASkippedStepHasNoNorm) {
  scaler_.scale(torch::ones({}));
  set_grad(4, kInf);
  const StepResult result = scaler_.step(sgd_, {.max_norm = 2.5});
  EXPECT_TRUE(result.skipped());
  EXPECT_TRUE(std::isnan(result.grad_norm())) << result.grad_norm();
  const StepResult finite(torch::ones({}), torch::ones({}));
  EXPECT_TRUE(std::isnan(finite.grad_norm())) << finite.grad_norm();
  const StepResult taken(torch::zeros({}), torch::ones({}));
  EXPECT_EQ(taken.grad_norm(), 1.0);
}

TEST_F(GradScalerTest, NonFiniteNormSkipsEvenWhenDisabledAndLeavesGradients) {
  GradScaler disabled({.enabled = false});
  set_grad(1, kInf);
  EXPECT_TRUE(disabled.step(sgd_, {.max_norm = 1.0}).skipped());
  EXPECT_TRUE(weight_.equal(torch::tensor({1.0F, 2.0F}))) << weight_;
  EXPECT_EQ(weight_.grad()[0].item<float>(), 1.0F);
}

TEST_F(GradScalerTest, MisorderedCallsThrowAndChangeNothing) {
  set_grad(4, 8);
  EXPECT_ERROR(scaler_.unscale_(sgd_), c10::Error, "call scale(loss)");
  EXPECT_ERROR(scaler_.step(sgd_), c10::Error, "call scale(loss)");
  EXPECT_ERROR(scaler_.update(), c10::Error, "call scale(loss)");
  scaler_.scale(torch::ones({}));
  EXPECT_ERROR(scaler_.update(), c10::Error, "no optimizer was");
  scaler_.unscale_(sgd_);
  EXPECT_ERROR(scaler_.unscale_(sgd_), c10::Error, "already called");
  scaler_.step(sgd_);
  EXPECT_ERROR(scaler_.step(sgd_), c10::Error, "call update() once");
  EXPECT_ERROR(scaler_.unscale_(sgd_), c10::Error, "already been called");
  EXPECT_TRUE(weight_.equal(torch::tensor({0.0F, 0.0F}))) << weight_;
  scaler_.update();
  EXPECT_ERROR(scaler_.update(), c10::Error, "no optimizer was");
}

TEST_F(GradScalerTest, AbandonedIterationLeavesNoTrace) {
  iterate(4, 4);
  scaler_.scale(torch::ones({}));
  set_grad(kInf, 1);
  scaler_.unscale_(sgd_);
  scaler_.abandon();
  iterate(4, 4);
  EXPECT_EQ(scaler_.get_scale(), 8.0); // two clean steps in a row
  EXPECT_TRUE(weight_.equal(torch::tensor({-1.0F, 0.0F}))) << weight_;
}

class ThrowsOnce : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure) override {
    TORCH_CHECK(std::exchange(thrown_, true), "no memory");
    return SGD::step(std::move(closure));
  }

 private:
  bool thrown_ = false;
};

TEST_F(GradScalerTest, StepThatThrewCanBeRetriedWithoutUnscalingTwice) {
  ThrowsOnce sgd({weight_}, torch::optim::SGDOptions(1.0));
  scaler_.scale(torch::ones({}));
  set_grad(4, 8);
  EXPECT_ERROR(scaler_.step(sgd), c10::Error, "no memory");
  EXPECT_TRUE(scaler_.step(sgd).stepped());
  EXPECT_TRUE(weight_.equal(torch::tensor({0.0F, 0.0F}))) << weight_;
}

TEST_F(GradScalerTest, Fp16GradientIsNamedAndNothingIsMarkedUnscaled) {
  torch::nn::Linear net(2, 2);
  net->weight.set_data(net->weight.to(torch::kHalf));
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1.0));
  scaler_.scale(torch::ones({}));
  net->bias.mutable_grad() = torch::ones({2});
  net->weight.mutable_grad() = torch::ones({2, 2}, torch::kHalf);
  EXPECT_ERROR(
      scaler_.unscale_(sgd), c10::Error, "parameter 0 of group 0", "[2, 2]");
  scaler_.name_parameters(*net);
  EXPECT_ERROR(scaler_.unscale_(sgd), c10::Error, "'weight'", "masters");
  EXPECT_ERROR(scaler_.step(sgd), c10::Error, "'weight'");
  EXPECT_TRUE(net->bias.grad().equal(torch::ones({2})));
}

TEST_F(GradScalerTest, Bf16GradientsAreHandledAndChecked) {
  auto weight = torch::zeros({2}, torch::kBFloat16).requires_grad_();
  torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1.0));
  scaler_.scale(torch::ones({}));
  weight.mutable_grad() = torch::full({2}, 4.0F).to(torch::kBFloat16);
  EXPECT_TRUE(scaler_.step(sgd).stepped());
  EXPECT_EQ(weight[0].item<float>(), -1.0F);
  scaler_.update();
  scaler_.scale(torch::ones({}));
  weight.mutable_grad() = torch::tensor({1.0F, kNan}).to(torch::kBFloat16);
  EXPECT_TRUE(scaler_.step(sgd).skipped());
}

TEST_F(GradScalerTest, NanIsFoundInEveryGradientDtype) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    auto weight = torch::zeros({3}, dtype).requires_grad_();
    torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1.0));
    scaler_.scale(torch::ones({}));
    weight.mutable_grad() = torch::tensor({1.0F, kNan, 1.0F}).to(dtype);
    EXPECT_TRUE(scaler_.step(sgd).skipped()) << dtype;
    scaler_.update();
  }
}

TEST_F(GradScalerTest, SparseGradientsAreUnscaledAndChecked) {
  auto table = torch::zeros({4, 2}).requires_grad_();
  torch::optim::SGD sgd({table}, torch::optim::SGDOptions(1.0));
  scaler_.scale(torch::ones({}));
  table.mutable_grad() = torch::sparse_coo_tensor(
      torch::tensor({{1, 1}}), torch::full({2, 2}, 4.0F), {4, 2});
  EXPECT_TRUE(scaler_.step(sgd).stepped());
  EXPECT_EQ(table[1][0].item<float>(), -2.0F);
  scaler_.update();
  scaler_.scale(torch::ones({}));
  table.mutable_grad() = torch::sparse_coo_tensor(
      torch::tensor({{1, 1}}), torch::full({2, 2}, kInf), {4, 2});
  EXPECT_TRUE(scaler_.step(sgd).skipped());
}

TEST_F(GradScalerTest, DetachedLossSaysThatNoParameterHasAGradient) {
  scaler_.scale(torch::ones({}));
  EXPECT_ERROR(
      scaler_.step(sgd_), c10::Error, "0 of 1 parameters have gradients");
  iterate(1, 1);
  weight_.mutable_grad().reset();
  scaler_.scale(torch::ones({}));
  EXPECT_TRUE(scaler_.step(sgd_, {.allow_no_grad = true}).skipped());
  EXPECT_ERROR(scaler_.update(), c10::Error, "no optimizer was");
  iterate(1, 1);
  EXPECT_EQ(scaler_.get_scale(), 8.0); // counted: two clean steps, no more
}

TEST_F(GradScalerTest, LbfgsIsRefusedWithTheReason) {
  torch::optim::LBFGS lbfgs({weight_}, torch::optim::LBFGSOptions(1.0));
  scaler_.scale(torch::ones({}));
  set_grad(1, 1);
  EXPECT_ERROR(scaler_.step(lbfgs), c10::Error, "LBFGS", "inside step()");
}

TEST_F(GradScalerTest, TwoOptimizersAreDecidedEachForItselfAndCountOnce) {
  auto other = torch::zeros({1}).requires_grad_();
  torch::optim::SGD second({other}, torch::optim::SGDOptions(1.0));
  scaler_.scale(torch::ones({}));
  set_grad(4, kInf);
  other.mutable_grad() = torch::full({1}, 4.0F);
  EXPECT_TRUE(scaler_.step(sgd_).skipped());
  EXPECT_TRUE(scaler_.step(second).stepped());
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale(), 2.0);
}

TEST_F(GradScalerTest, StateLoadsBeforeAndAfterTheFirstScale) {
  iterate(1, 1);
  const io::StateDict state = scaler_.state_dict();
  EXPECT_EQ(state.integer("_growth_tracker"), 1);
  for (const bool used : {false, true}) {
    GradScaler other;
    if (used) {
      other.scale(torch::ones({}));
    }
    other.load_state_dict(state);
    EXPECT_EQ(other.get_scale(), 4.0);
    EXPECT_EQ(other.get_growth_interval(), 2);
    other.scale(torch::ones({}));
    set_grad(1, 1);
    other.step(sgd_);
    other.update();
    EXPECT_EQ(other.get_scale(), 8.0);
  }
}

TEST_F(GradScalerTest, StateOfADisabledOrPoisonedScalerIsRefusedUnchanged) {
  EXPECT_TRUE(GradScaler({.enabled = false}).state_dict().empty());
  EXPECT_ERROR(scaler_.load_state_dict({}), c10::Error, "disabled scaler");
  io::StateDict state = scaler_.state_dict();
  state.set("growth_interval", 7);
  state.set("scale", 0.0);
  EXPECT_ERROR(scaler_.load_state_dict(state), c10::ValueError, "scale", "0");
  EXPECT_EQ(scaler_.get_growth_interval(), 2);
  EXPECT_EQ(scaler_.get_scale(), 4.0);
}

TEST_F(GradScalerTest, HalfLossIsScaledInFp32) {
  const auto scaled = scaler_.scale(torch::full({}, 60000.0).to(torch::kHalf));
  EXPECT_EQ(scaled.scalar_type(), torch::kFloat);
  EXPECT_EQ(scaled.item<float>(), 240000.0F);
}

TEST_F(GradScalerTest, DisabledScalerOnlySteps) {
  GradScaler disabled(Precision::bf16_mixed());
  EXPECT_FALSE(disabled.is_enabled());
  const auto loss = torch::ones({});
  EXPECT_TRUE(disabled.scale(loss).is_same(loss));
  for (int i = 0; i < 2; ++i) {
    set_grad(1, 1);
    EXPECT_TRUE(disabled.step(sgd_).stepped());
    disabled.update();
  }
  EXPECT_TRUE(weight_.equal(torch::tensor({-1.0F, 0.0F}))) << weight_;
  EXPECT_EQ(disabled.get_scale(), 1.0);
}

TEST(GradScalerOptionsTest, EachBadOptionNamesItsField) {
  using Options = GradScalerOptions;
  const std::vector<std::pair<Options, std::string>> cases{
      {Options{.init_scale = 0}, "init_scale"},
      {Options{.init_scale = kInf}, "init_scale"},
      {Options{.growth_factor = 1}, "growth_factor"},
      {Options{.backoff_factor = 1}, "backoff_factor"},
      {Options{.backoff_factor = kNan}, "backoff_factor"},
      {Options{.growth_interval = 0}, "growth_interval"},
      {Options{.min_scale = 0}, "min_scale"},
      {Options{.max_scale = 0.5}, "max_scale"},
      {Options{.init_scale = 2, .min_scale = 4}, "init_scale"},
      {Options{.hysteresis = 0}, "hysteresis"},
      {Options{.consecutive_hysteresis = true}, "consecutive_hysteresis"},
      {Options{.max_consecutive_skips = -1}, "max_consecutive_skips"},
      {Options{.max_consecutive_faults = -1}, "max_consecutive_faults"},
      {Options{.min_scale = 2, .torch_exact = true}, "torch_exact"},
      {Options{.torch_exact = true, .check_without_scaling = true},
       "torch_exact"}};
  for (const auto& [options, field] : cases) {
    EXPECT_ERROR(GradScaler{options}, c10::ValueError, field + " must");
  }
}

TEST_F(GradScalerTest, UpdateWithAValueSetsTheScaleWithinItsLimits) {
  scaler_.scale(torch::ones({}));
  scaler_.update(32.0);
  EXPECT_EQ(scaler_.get_scale(), 32.0);
  EXPECT_ERROR(scaler_.update(0.5), c10::ValueError, "new_scale", "0.5");
  EXPECT_EQ(scaler_.get_scale(), 32.0);
}

} // namespace
} // namespace ampkit
