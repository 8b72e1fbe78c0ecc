#include "train/parameters.h"

#include <algorithm>

#include <ampkit/amp/cast_parameters.h>
#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
#include <ampkit/optim/muon.h>
#include <ampkit/optim/rmsprop.h>
#include <ampkit/optim/sgd.h>

#include "support/errors.h"
#include "zoo/train/changed_key.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

std::unique_ptr<optim::FusedOptimizer> only_optimizer(
    const OptimizerConfig& config, const torch::nn::Module& module) {
  auto made = make_optimizers(config, module);
  EXPECT_EQ(made.size(), 1U);
  return std::move(made.front());
}

TEST(ParametersTest, PresetsThatCannotBeTrainedAreLeftOut) {
  const auto presets = trainable_presets();
  auto expected = Precision::names();
  EXPECT_EQ(std::erase(expected, "bf16-split"), 1U);
  EXPECT_EQ(presets, expected);
}

TEST(ParametersTest, BatchNormsAndCountersKeepTheirDtypes) {
  const auto model = make_model({.name = "resnet_small", .in_channels = 1});
  cast_parameters(*model.module, Precision::bf16_master());
  for (const auto& item : model.module->named_parameters()) {
    const bool norm = item.key().find("bn") != std::string::npos ||
                      item.key().find("downsample.1") != std::string::npos;
    EXPECT_EQ(item.value().scalar_type(), norm ? at::kFloat : at::kBFloat16)
        << item.key();
  }
  for (const auto& item : model.module->named_buffers()) {
    const bool counter = item.key().ends_with("num_batches_tracked");
    EXPECT_EQ(item.value().scalar_type(), counter ? at::kLong : at::kFloat);
  }
}

TEST(ParametersTest, OnlyMatricesDecayUnlessAllShall) {
  const auto model = linear_model();
  OptimizerConfig config;
  config.weight_decay = 0.1;
  const auto decay_of = [](torch::optim::Optimizer& optimizer, size_t group) {
    return static_cast<torch::optim::AdamWOptions&>(
               optimizer.param_groups().at(group).options())
        .weight_decay();
  };
  const auto some = only_optimizer(config, *model.module);
  ASSERT_EQ(some->param_groups().size(), 2U);
  EXPECT_EQ(decay_of(*some, 0), 0.1);
  EXPECT_EQ(decay_of(*some, 1), 0.0);
  EXPECT_EQ(some->param_groups()[1].params().at(0).dim(), 1);

  config.decay_all = true;
  const auto all = only_optimizer(config, *model.module);
  ASSERT_EQ(all->param_groups().size(), 1U);
  EXPECT_EQ(decay_of(*all, 0), 0.1);
}

TEST(ParametersTest, OptionsReachTheOptimizer) {
  OptimizerConfig config;
  config.name = "sgd";
  config.lr = 0.25;
  config.momentum = 0.5;
  config.nesterov = true;
  const auto optimizer = only_optimizer(config, *linear_model().module);
  const auto& options = static_cast<torch::optim::SGDOptions&>(
      optimizer->param_groups().at(0).options());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.momentum(), 0.5);
  EXPECT_TRUE(options.nesterov());

  config.momentum = 0;
  EXPECT_ERROR(
      make_optimizers(config, *linear_model().module),
      c10::ValueError,
      "nesterov");
}

// The numbers are none of the defaults.
OptimizerConfig unusual_config() {
  OptimizerConfig config;
  config.lr = 0.25;
  config.weight_decay = 0.125;
  config.beta1 = 0.5;
  config.beta2 = 0.75;
  config.eps = 1e-3;
  config.amsgrad = true;
  config.momentum = 0.625;
  config.dampening = 0.0625;
  config.lr_decay = 0.375;
  config.initial_accumulator_value = 2;
  config.alpha = 0.875;
  config.centered = true;
  config.beta2_decay = -0.5;
  config.d = 3;
  config.bias_correction = false;
  config.ns_steps = 4;
  config.adjust_lr = "match-rms-adamw";
  return config;
}

template <class Optimizer>
typename Optimizer::Options options_made(const std::string& name) {
  auto config = unusual_config();
  config.name = name;
  const auto made = make_optimizers(config, *linear_model().module);
  const auto options = dynamic_cast<Optimizer&>(*made.front()).options();
  EXPECT_EQ(options.lr, 0.25) << name;
  EXPECT_EQ(options.weight_decay, 0.125) << name;
  if constexpr (requires { options.eps + 1; }) {
    EXPECT_EQ(options.eps, 1e-3) << name;
  }
  if constexpr (requires { options.betas; }) {
    EXPECT_EQ(options.betas, std::pair(0.5, 0.75)) << name;
  }
  if constexpr (requires { options.amsgrad; }) {
    EXPECT_TRUE(options.amsgrad) << name;
  }
  if constexpr (requires { options.momentum; }) {
    EXPECT_EQ(options.momentum, 0.625) << name;
  }
  return options;
}

TEST(ParametersTest, EveryKeyReachesTheOptimizersThatHaveIt) {
  const auto adafactor = options_made<optim::Adafactor>("adafactor");
  EXPECT_EQ(adafactor.beta2_decay, -0.5);
  EXPECT_EQ(adafactor.d, 3);
  const auto adagrad = options_made<optim::Adagrad>("adagrad");
  EXPECT_EQ(adagrad.lr_decay, 0.375);
  EXPECT_EQ(adagrad.initial_accumulator_value, 2);
  options_made<optim::Adam>("adam");
  options_made<optim::AdamW>("adamw");
  EXPECT_FALSE(options_made<optim::LAMB>("lamb").bias_correction);
  options_made<optim::Lion>("lion");
  const auto muon = options_made<optim::Muon>("muon");
  EXPECT_EQ(muon.ns_steps, 4);
  EXPECT_EQ(muon.adjust_lr_fn, optim::AdjustLr::match_rms_adamw);
  EXPECT_FALSE(muon.nesterov);
  const auto rmsprop = options_made<optim::RMSprop>("rmsprop");
  EXPECT_EQ(rmsprop.alpha, 0.875);
  EXPECT_TRUE(rmsprop.centered);
  EXPECT_EQ(options_made<optim::SGD>("sgd").dampening, 0.0625);
}

TEST(ParametersTest, MuonHasTheMatricesAndAnAdamwTheRest) {
  auto config = unusual_config();
  config.name = "muon";
  config.adamw_lr = 0.03125;
  const auto model = linear_model();
  const auto made = make_optimizers(config, *model.module);
  ASSERT_EQ(made.size(), 2U);
  const auto parameters = model.module->parameters();
  EXPECT_EQ(made[0]->name_of(parameters.at(0)), "1.weight");
  EXPECT_EQ(made[1]->name_of(parameters.at(1)), "1.bias");
  const auto others = dynamic_cast<optim::AdamW&>(*made[1]).options();
  EXPECT_EQ(others.lr, 0.03125);
  EXPECT_EQ(others.weight_decay, 0); // of a bias
  EXPECT_EQ(others.betas, std::pair(0.5, 0.75));
  config.adamw_lr = 0;
  const auto same = make_optimizers(config, *model.module);
  EXPECT_EQ(dynamic_cast<optim::AdamW&>(*same[1]).options().lr, 0.25);

  const torch::nn::Conv2d no_matrix(1, 4, 3);
  EXPECT_ERROR(
      make_optimizers(config, *no_matrix),
      ConfigError,
      "optimizer.name: muon needs weights of two dimensions");
}

TEST(ParametersTest, KeysOfAnOptimizerAreThoseItsOptionsHave) {
  const auto model = linear_model();
  const auto settings = [&](const RunConfig& config) {
    std::string text;
    for (const auto& made : make_optimizers(config.optimizer, *model.module)) {
      const auto state = made->state_dict();
      for (const auto& [name, value] : state.entries()) {
        text += name + " " + io::describe(value) + "\n";
      }
    }
    return text;
  };
  RunConfig config;
  for (const auto& key : owned_keys_of(config, "optimizer")) {
    for (const auto& name : optimizer_names()) {
      RunConfig plain;
      plain.optimizer.name = name;
      const bool has =
          std::ranges::find(key.only_of, name) != key.only_of.end();
      EXPECT_EQ(settings(changed(plain, key.name)) != settings(plain), has)
          << key.name << " of " << name;
    }
  }
}

TEST(ParametersTest, EveryOptimizerNameMakesOneThatSteps) {
  for (const auto& name : optimizer_names()) {
    OptimizerConfig config;
    config.name = name;
    const auto model = linear_model();
    const auto optimizers = make_optimizers(config, *model.module);
    for (const auto& parameter : model.module->parameters()) {
      parameter.mutable_grad() = torch::ones_like(parameter);
    }
    size_t groups = 0;
    for (const auto& optimizer : optimizers) {
      optimizer->step();
      groups += optimizer->param_groups().size();
    }
    EXPECT_EQ(groups, 2U) << name;
    EXPECT_EQ(optimizers[0]->steps_of(model.module->parameters()[0]), 1)
        << name;
  }
}

} // namespace
} // namespace ampkit::zoo
