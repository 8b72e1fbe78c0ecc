// What AdamW and SGD share: groups, names, masters, gradients, skipped steps.

#include <functional>

#include <ATen/Parallel.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/clip.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "optim/parameters.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::optim {
namespace {

/// Kernels x dtypes of parameters.
class KernelsAndDtypes
    : public ::testing::TestWithParam<std::tuple<Kernel, at::ScalarType>> {
 protected:
  Kernel kernel() const { return std::get<0>(GetParam()); }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(KernelsAndDtypes, AZeroGradientOnFreshStateMovesNothing) {
  const auto before = torch::randn({9}).to(dtype());
  const auto weight = parameter(before.clone());
  set_grad(weight, torch::zeros({9}, dtype()));
  AdamW adamw({weight}, {.weight_decay = 0, .kernel = kernel()});
  adamw.step();
  EXPECT_TRUE(weight.equal(before)) << "eps = 1e-8 must not be rounded to 0";
}

TEST_P(KernelsAndDtypes, FoundInfLeavesEverythingUnchangedToTheLastBit) {
  const auto weight = parameter(torch::randn({300}).to(dtype()));
  AdamW adamw({weight}, {.kernel = kernel()});
  set_grad(weight, torch::randn({300}).to(dtype()));
  adamw.step();
  const auto grad = torch::full({300}, kNan, dtype());
  set_grad(weight, grad);
  const auto before = weight.detach().clone();
  const auto state = adamw.state_dict();
  const auto exp_avg = state.tensor("state.0.exp_avg").clone();
  const auto exp_avg_sq = state.tensor("state.0.exp_avg_sq").clone();
  const auto master = adamw.master(weight).detach().clone();
  for (const float found_inf : {1.0F, 2.0F, 1e-3F, kInf}) {
    adamw.fused_step(
        {.grad_divisor = torch::full({}, kNan),
         .found_inf = torch::full({}, found_inf)});
  }
  EXPECT_TRUE(weight.equal(before));
  EXPECT_TRUE(adamw.master(weight).equal(master));
  EXPECT_TRUE(adamw.state_dict().tensor("state.0.exp_avg").equal(exp_avg));
  EXPECT_TRUE(
      adamw.state_dict().tensor("state.0.exp_avg_sq").equal(exp_avg_sq));
  EXPECT_EQ(adamw.steps_of(weight), 1);
}

TEST_P(KernelsAndDtypes, TheFirstStepMayBeSkipped) {
  const auto skipped = parameter(torch::ones({5}).to(dtype()));
  const auto plain = parameter(torch::ones({5}).to(dtype()));
  const SGDOptions options{
      .lr = 0.5, .momentum = 0.5, .dampening = 0.5, .kernel = kernel()};
  SGD a({skipped}, options);
  SGD b({plain}, options);
  set_grad(skipped, torch::full({5}, kInf, dtype()));
  a.fused_step({.found_inf = torch::ones({})});
  for (int step = 0; step < 2; ++step) {
    set_grad(skipped, torch::ones({5}, dtype()));
    set_grad(plain, torch::ones({5}, dtype()));
    a.step();
    b.step();
  }
  EXPECT_TRUE(skipped.equal(plain)) << "dampening spares the first step only";
  EXPECT_TRUE(a.master(skipped).equal(torch::full({5}, 0.0F)))
      << "1 - 0.5 * 1 - 0.5 * (0.5 * 1 + 0.5 * 1)";
}

TEST_P(KernelsAndDtypes, GradientsAreReadAndNotWritten) {
  const auto weight = parameter(torch::ones({70}).to(dtype()));
  const auto grad = torch::randn({70}).to(dtype());
  set_grad(weight, grad.clone());
  AdamW adamw({weight}, {.kernel = kernel()});
  adamw.inspect_gradients();
  adamw.fused_step(
      {.grad_divisor = torch::full({}, 3.0F), .found_inf = torch::zeros({})});
  EXPECT_TRUE(weight.grad().equal(grad));
}

TEST_P(KernelsAndDtypes, WeightsLoadedAfterConstructionSurviveTheNextStep) {
  torch::nn::Linear module(6, 4);
  module->to(dtype());
  SGD sgd(
      module->parameters(), {.lr = 1.0, .momentum = 0.9, .kernel = kernel()});
  const auto step = [&] {
    for (const auto& p : module->parameters()) {
      set_grad(p, torch::zeros_like(p));
    }
    sgd.step();
  };
  step(); // makes masters of the random weights
  torch::nn::Linear other(6, 4);
  other->to(dtype());
  {
    const torch::NoGradGuard no_grad;
    module->weight.copy_(other->weight); // bumps the version
    module->bias.data().copy_(other->bias); // does not
  }
  step();
  EXPECT_TRUE(module->weight.equal(other->weight));
  EXPECT_TRUE(module->bias.equal(other->bias));
  module->weight.set_data(torch::full({4, 6}, 2.0).to(dtype()));
  step();
  EXPECT_TRUE(module->weight.equal(torch::full({4, 6}, 2.0).to(dtype())));
}

TEST_P(KernelsAndDtypes, ParametersWithoutGradientStayAsTheyAre) {
  const auto used = parameter(torch::ones({3}).to(dtype()));
  const auto unused = parameter(torch::ones({3}).to(dtype()));
  const auto frozen = torch::ones({3}).to(dtype());
  AdamW adamw({used, unused, frozen}, {.lr = 0.1, .kernel = kernel()});
  set_grad(used, torch::ones({3}, dtype()));
  EXPECT_EQ(adamw.inspect_gradients().with_gradient, 1);
  adamw.step();
  EXPECT_EQ(adamw.steps_of(used), 1);
  EXPECT_EQ(adamw.steps_of(unused), 0);
  EXPECT_FALSE(used.equal(torch::ones({3}, dtype())));
  EXPECT_TRUE(unused.equal(torch::ones({3}, dtype())));
  EXPECT_TRUE(frozen.equal(torch::ones({3}, dtype())));
}

TEST_P(KernelsAndDtypes, ModulesMovedToAnotherDtypeGoOn) {
  torch::nn::Linear module(6, 4);
  AdamW adamw(named(*module), {.kernel = kernel()});
  const auto step = [&] {
    for (const auto& p : module->parameters()) {
      set_grad(p, torch::ones_like(p));
    }
    adamw.step();
  };
  step();
  module->to(dtype());
  step();
  EXPECT_EQ(adamw.master(module->weight).scalar_type(), at::kFloat);
  EXPECT_EQ(adamw.steps_of(module->weight), 2);
  module->to(at::kFloat);
  step();
  EXPECT_TRUE(adamw.master(module->weight).is_same(module->weight));
}

TEST_P(KernelsAndDtypes, GradientsInAnotherMemoryLayoutAreTakenByIndex) {
  const auto values = torch::randn({2, 3, 4, 5}).to(dtype());
  const auto grad = torch::randn({2, 3, 4, 5}).to(dtype());
  const auto plain = parameter(values.clone());
  const auto permuted =
      parameter(values.contiguous(at::MemoryFormat::ChannelsLast).clone());
  AdamW a({plain}, {.lr = 0.1, .kernel = kernel()});
  AdamW b({permuted}, {.lr = 0.1, .kernel = kernel()});
  for (int step = 0; step < 2; ++step) {
    set_grad(plain, grad.contiguous(at::MemoryFormat::ChannelsLast));
    set_grad(permuted, grad);
    a.step();
    b.step();
  }
  EXPECT_TRUE(plain.equal(permuted));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    KernelsAndDtypes,
    ::testing::Combine(
        ::testing::Values(Kernel::stock, Kernel::highway),
        ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16)),
    [](const auto& tested) {
      const bool stock = std::get<0>(tested.param) == Kernel::stock;
      return std::string(stock ? "Stock" : "Highway") +
             toString(std::get<1>(tested.param));
    });

TEST(FusedOptimizerTest, ResultsDontDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> weights;
  std::vector<double> sums;
  for (const int threads : {1, 2, 3, 8}) {
    at::set_num_threads(threads);
    torch::manual_seed(7);
    std::vector<at::Tensor> parameters;
    for (const int64_t size : {5, 200001, 64, 32768, 70000}) {
      parameters.push_back(parameter(torch::randn({size})));
    }
    AdamW adamw(parameters);
    for (int step = 0; step < 3; ++step) {
      for (const auto& p : parameters) {
        set_grad(p, torch::randn_like(p));
      }
      sums.push_back(adamw.inspect_gradients().sum_of_squares.item<double>());
      adamw.step();
    }
    weights.push_back(parameters);
  }
  at::set_num_threads(before);
  for (size_t run = 1; run < weights.size(); ++run) {
    for (size_t i = 0; i < weights[0].size(); ++i) {
      EXPECT_TRUE(weights[run][i].equal(weights[0][i]));
    }
    for (size_t step = 0; step < 3; ++step) {
      EXPECT_EQ(sums[run * 3 + step], sums[step]);
    }
  }
}

TEST(FusedOptimizerTest, InspectionNamesParametersAndCountsElements) {
  torch::nn::Linear module(3, 2);
  AdamW adamw(named(*module));
  set_grad(
      module->weight, torch::tensor({{1.F, kInf, 2.F}, {kNan, -kInf, 0.F}}));
  set_grad(module->bias, torch::tensor({3.F, 4.F}));
  const auto summary = adamw.inspect_gradients();
  EXPECT_EQ(summary.non_finite.item<float>(), 3);
  EXPECT_EQ(summary.with_gradient, 2);
  const auto found = adamw.non_finite_gradients();
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].name, "weight");
  EXPECT_EQ(found[0].elements, 3);
  set_grad(module->weight, torch::zeros({2, 3}));
  EXPECT_EQ(adamw.inspect_gradients().sum_of_squares.item<double>(), 25);
  EXPECT_TRUE(adamw.non_finite_gradients().empty());
}

TEST(FusedOptimizerTest, SharedParametersCountOnceAndKeepTheFirstName) {
  const auto shared = parameter(torch::ones({2}));
  SGD sgd(NamedParameters{{shared, shared}, {"in", "out"}}, {.lr = 1.0});
  set_grad(shared, torch::ones({2}));
  EXPECT_EQ(sgd.inspect_gradients().sum_of_squares.item<double>(), 2);
  sgd.step();
  EXPECT_TRUE(shared.equal(torch::zeros({2})));
  EXPECT_EQ(sgd.name_of(shared), "in");
  EXPECT_EQ(sgd.param_groups()[0].params().size(), 1);
}

TEST(FusedOptimizerTest, StepTellsAutogradThatWeightsChanged) {
  const auto weight = parameter(torch::ones({2}));
  const auto loss = (weight * weight).sum();
  SGD sgd({weight});
  set_grad(weight, torch::ones({2}));
  sgd.step();
  EXPECT_ERROR(loss.backward(), c10::Error, "modified by an inplace operation");
}

TEST(FusedOptimizerTest, ClosureRunsOnceWithGradientsEnabled) {
  const auto weight = parameter(torch::full({2}, 3.0F));
  SGD sgd({weight}, {.lr = 0.5});
  const torch::NoGradGuard no_grad;
  int runs = 0;
  const auto loss = sgd.step([&] {
    ++runs;
    auto value = weight.square().sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(loss.item<float>(), 18);
  EXPECT_TRUE(weight.equal(torch::zeros({2})));
}

TEST(FusedOptimizerTest, GroupsHaveTheirOwnOptionsAndStockOnesCanBeCast) {
  const auto a = parameter(torch::ones({1}));
  const auto b = parameter(torch::ones({1}));
  SGD sgd({
      ParamGroup{{a}, SGDOptions{.lr = 0.5}},
      ParamGroup{{b}, SGDOptions{.lr = 0.25}, "slow"},
  });
  auto& options =
      static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[1].options());
  options.lr(0.125);
  EXPECT_EQ(sgd.options(1).lr, 0.125);
  set_grad(a, torch::ones({1}));
  set_grad(b, torch::ones({1}));
  sgd.step();
  EXPECT_EQ(a.item<float>(), 0.5F);
  EXPECT_EQ(b.item<float>(), 0.875F);
}

TEST(FusedOptimizerTest, GroupsAddedLaterTakePart) {
  const auto a = parameter(torch::ones({1}));
  const auto b = parameter(torch::ones({1}));
  const auto c = parameter(torch::ones({1}));
  SGD sgd({a}, {.lr = 0.5});
  sgd.add_param_group(ParamGroup{{b}, SGDOptions{.lr = 0.25}});
  torch::optim::Optimizer& base = sgd;
  base.add_param_group(torch::optim::OptimizerParamGroup({c}));
  for (const auto& p : {a, b, c}) {
    set_grad(p, torch::ones({1}));
  }
  sgd.step();
  EXPECT_EQ(a.item<float>(), 0.5F);
  EXPECT_EQ(b.item<float>(), 0.75F);
  EXPECT_EQ(c.item<float>(), 0.5F) << "the options of the first group";
}

TEST(FusedOptimizerTest, Fp64ParametersKeepFp64State) {
  const auto weight = parameter(torch::ones({3}, at::kDouble));
  AdamW adamw({weight});
  set_grad(weight, torch::full({3}, 1e-3, at::kDouble));
  EXPECT_NEAR(
      adamw.inspect_gradients().sum_of_squares.item<double>(), 3e-6, 1e-15);
  adamw.step();
  EXPECT_EQ(
      adamw.state_dict().tensor("state.0.exp_avg").scalar_type(), at::kDouble);
  EXPECT_NEAR(weight[0].item<double>(), (1 - 1e-5) - 1e-3, 1e-7);
}

TEST(FusedOptimizerTest, ClippingWithinTheStepEqualsClippedGradients) {
  struct Case {
    FusedStepInputs inputs;
    std::function<void(const std::vector<at::Tensor>&)> clip;
  };
  const std::vector<Case> cases{
      {{.clip_value = 0.5}, [](const auto& p) { clip_grad_value_(p, 0.5); }},
      {{.adaptive_clip = AdaptiveClip{.clip_factor = 0.1}},
       [](const auto& p) { adaptive_clip_grad_(p, {.clip_factor = 0.1}); }}};
  for (const Kernel kernel : {Kernel::stock, Kernel::highway}) {
    for (const Case& tested : cases) {
      torch::manual_seed(3);
      const auto a = parameter(torch::randn({7, 5}));
      const auto b = parameter(a.detach().clone());
      SGD within({a}, {.lr = 1, .kernel = kernel});
      SGD before({b}, {.lr = 1, .kernel = kernel});
      const auto grad = torch::randn({7, 5});
      set_grad(a, grad * 4);
      set_grad(b, grad.clone());
      FusedStepInputs inputs = tested.inputs;
      inputs.grad_divisor = torch::full({}, 4.0F);
      within.fused_step(inputs);
      tested.clip({b});
      before.step();
      EXPECT_TRUE(a.equal(b));
      EXPECT_FALSE(b.grad().equal(grad)) << "the limit counted";
      EXPECT_TRUE(a.grad().equal(grad * 4)) << "gradients are not written";
    }
  }
}

TEST(FusedOptimizerTest, TurningAmsgradOnLaterStartsFromTheNextAverage) {
  const auto weight = parameter(torch::ones({3}));
  Adam adam({weight}, {.lr = 0.1});
  set_grad(weight, torch::ones({3}));
  adam.step();
  adam.set_options({.lr = 0.1, .amsgrad = true});
  adam.step();
  const auto state = adam.state_dict();
  EXPECT_TRUE(state.tensor("state.0.max_exp_avg_sq")
                  .equal(state.tensor("state.0.exp_avg_sq")));
}

} // namespace
} // namespace ampkit::optim
