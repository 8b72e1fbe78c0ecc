// What AdamW and SGD refuse, and that they change nothing then.

#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
#include <ampkit/optim/muon.h>
#include <ampkit/optim/rmsprop.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "optim/parameters.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::optim {
namespace {

TEST(FusedOptimizerErrors, SparseGradientIsRefusedByNameAndNothingMoves) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 2).sparse(true));
  torch::nn::Linear head(2, 1);
  AdamW adamw(NamedParameters{
      {head->bias, table->weight}, {"head.bias", "table.weight"}});
  head->forward(table->forward(torch::tensor({1, 2}))).sum().backward();
  const auto before = head->bias.detach().clone();
  EXPECT_ERROR(
      adamw.step(), c10::Error, "'table.weight'", "Sparse", "sparse = false");
  EXPECT_ERROR(adamw.inspect_gradients(), c10::Error, "'table.weight'");
  EXPECT_TRUE(head->bias.equal(before));
}

TEST(FusedOptimizerErrors, GradientOfAnotherShapeIsRefusedByName) {
  const auto weight = parameter(torch::ones({2, 3}));
  AdamW adamw(NamedParameters{{weight}, {"fc.weight"}});
  set_grad(weight, torch::ones({3, 2}));
  EXPECT_ERROR(
      adamw.step(), c10::Error, "'fc.weight' (Float [2, 3])", "[3, 2]");
}

TEST(FusedOptimizerErrors, NoParametersIsAnError) {
  EXPECT_ERROR(
      AdamW(std::vector<at::Tensor>()), c10::ValueError, "0 parameters");
  EXPECT_ERROR(
      SGD(std::vector<ParamGroup<SGDOptions>>()), c10::ValueError, "SGD", "0");
}

TEST(FusedOptimizerErrors, ParametersThatCantBeOptimizedAreRefusedByName) {
  const auto make = [](at::Tensor bad) {
    AdamW adamw(NamedParameters{{std::move(bad)}, {"bad"}});
  };
  EXPECT_ERROR(make(at::Tensor()), c10::ValueError, "'bad'", "undefined");
  EXPECT_ERROR(
      make(torch::ones({2}, at::kLong)), c10::ValueError, "'bad'", "Long");
  EXPECT_ERROR(
      make(parameter(torch::ones({2})) * 2), c10::ValueError, "'bad'", "leaf");
  EXPECT_ERROR(
      make(torch::ones({4, 4}).slice(1, 0, 2)), c10::ValueError, "strides");
}

TEST(FusedOptimizerErrors, DuplicatesAcrossGroupsAndAliasesAreRefused) {
  const auto weight = parameter(torch::ones({2}));
  EXPECT_ERROR(
      SGD(
          {ParamGroup{{weight}, SGDOptions{}},
           ParamGroup{{weight}, SGDOptions{}}}),
      c10::ValueError,
      "two groups");
  EXPECT_ERROR(
      SGD(NamedParameters{{weight, weight.detach()}, {"in", "out"}}),
      c10::ValueError,
      "'in'",
      "'out'",
      "same memory");
  EXPECT_ERROR(
      SGD(NamedParameters{{weight, torch::ones({1})}, {"a", "a"}}),
      c10::ValueError,
      "'a'");
  EXPECT_ERROR(
      SGD(NamedParameters{{weight}, {"a", "b"}}),
      c10::ValueError,
      "2 names for 1");
}

TEST(FusedOptimizerErrors, OptionsOutOfRangeNameTheField) {
  const std::vector<at::Tensor> p{parameter(torch::ones({1}))};
  EXPECT_ERROR(AdamW(p, {.lr = -1}), c10::ValueError, "lr", "-1");
  EXPECT_ERROR(AdamW(p, {.lr = kNan}), c10::ValueError, "lr");
  EXPECT_ERROR(AdamW(p, {.betas = {1, 0.9}}), c10::ValueError, "betas.first");
  EXPECT_ERROR(AdamW(p, {.betas = {0, 2}}), c10::ValueError, "betas.second");
  EXPECT_ERROR(AdamW(p, {.eps = -1}), c10::ValueError, "eps");
  EXPECT_ERROR(AdamW(p, {.weight_decay = -1}), c10::ValueError, "decay");
  EXPECT_ERROR(SGD(p, {.momentum = -1}), c10::ValueError, "momentum");
  EXPECT_ERROR(SGD(p, {.nesterov = true}), c10::ValueError, "nesterov");
}

TEST(FusedOptimizerErrors, OptionsOfTheOthersOutOfRangeNameTheField) {
  const std::vector<at::Tensor> p{parameter(torch::ones({2, 2}))};
  EXPECT_ERROR(Adam(p, {.betas = {0.9, 1}}), c10::ValueError, "betas.second");
  EXPECT_ERROR(Adagrad(p, {.lr_decay = -1}), c10::ValueError, "lr_decay");
  EXPECT_ERROR(
      Adagrad(p, {.initial_accumulator_value = -1}),
      c10::ValueError,
      "Adagrad: initial_accumulator_value must be finite and >= 0, got -1");
  EXPECT_ERROR(RMSprop(p, {.alpha = 1}), c10::ValueError, "alpha");
  EXPECT_ERROR(Lion(p, {.betas = {-1, 0}}), c10::ValueError, "betas.first");
  EXPECT_ERROR(LAMB(p, {.eps = kNan}), c10::ValueError, "LAMB: eps");
  EXPECT_ERROR(Adafactor(p, {.d = 0.5}), c10::ValueError, "d must be", ">= 1");
  EXPECT_ERROR(
      Adafactor(p, {.beta2_decay = 0.8}), c10::ValueError, "beta2_decay");
  EXPECT_ERROR(Adafactor(p, {.eps = {-1, 1e-3}}), c10::ValueError, "eps.first");
  EXPECT_ERROR(Muon(p, {.ns_steps = 100}), c10::ValueError, "ns_steps", "100");
}

TEST(FusedOptimizerErrors, MuonRefusesParametersThatAreNoMatricesByName) {
  const auto bias = parameter(torch::ones({3}));
  const auto weight = parameter(torch::ones({3, 2}));
  EXPECT_ERROR(
      Muon(NamedParameters{{weight, bias}, {"fc.weight", "fc.bias"}}),
      c10::ValueError,
      "Muon",
      "'fc.bias'",
      "2 dimensions",
      "[3]");
}

TEST(FusedOptimizerErrors, ClippingLimitsAreChecked) {
  const auto weight = parameter(torch::ones({1}));
  set_grad(weight, torch::ones({1}));
  SGD sgd({weight});
  EXPECT_ERROR(
      sgd.fused_step({.clip_value = 0}), c10::ValueError, "clip_value");
  EXPECT_ERROR(
      sgd.fused_step({.adaptive_clip = AdaptiveClip{.clip_factor = -1}}),
      c10::ValueError,
      "clip_factor");
  EXPECT_ERROR(sgd.inspect_gradients(3), c10::ValueError, "norm_type", "got 3");
  EXPECT_EQ(weight.item<float>(), 1);
}

TEST(FusedOptimizerErrors, FusedInputsAreChecked) {
  const auto weight = parameter(torch::ones({1}));
  set_grad(weight, torch::ones({1}));
  SGD sgd({weight});
  EXPECT_ERROR(
      sgd.fused_step({.grad_divisor = torch::zeros({})}),
      c10::ValueError,
      "> 0",
      "got 0");
  EXPECT_ERROR(
      sgd.fused_step({.found_inf = torch::zeros({2})}), c10::Error, "[2]");
  EXPECT_EQ(weight.item<float>(), 1);
}

TEST(FusedOptimizerErrors, OwnKernelsRefuseWhatTheyCantDo) {
  const auto weight = parameter(torch::ones({1}, at::kDouble));
  set_grad(weight, torch::ones({1}, at::kDouble));
  AdamW adamw({weight}, {.kernel = Kernel::highway});
  EXPECT_ERROR(adamw.step(), c10::Error, "Double", "Kernel::automatic");
}

} // namespace
} // namespace ampkit::optim
