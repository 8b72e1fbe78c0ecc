#include "train/parameters.h"

#include <algorithm>

#include <ampkit/amp/cast_parameters.h>

#include "support/errors.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

TEST(ParametersTest, PresetsThatCannotBeTrainedAreLeftOut) {
  const auto presets = trainable_presets();
  EXPECT_THAT(
      presets, ::testing::IsSupersetOf({"fp32", "fp16-mixed", "bf16-mixed"}));
  EXPECT_THAT(presets, ::testing::Not(::testing::Contains("fp8-mixed")));
  EXPECT_THAT(presets, ::testing::Not(::testing::Contains("bf16-true")));
  EXPECT_THAT(presets, ::testing::Not(::testing::Contains("bf16-split")));
  EXPECT_THAT(presets, ::testing::Not(::testing::Contains("fp16-true")));
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
  const auto some = make_optimizer(config, *model.module);
  ASSERT_EQ(some->param_groups().size(), 2U);
  EXPECT_EQ(decay_of(*some, 0), 0.1);
  EXPECT_EQ(decay_of(*some, 1), 0.0);
  EXPECT_EQ(some->param_groups()[1].params().at(0).dim(), 1);

  config.decay_all = true;
  const auto all = make_optimizer(config, *model.module);
  ASSERT_EQ(all->param_groups().size(), 1U);
  EXPECT_EQ(decay_of(*all, 0), 0.1);
}

TEST(ParametersTest, OptionsReachTheOptimizer) {
  OptimizerConfig config;
  config.name = "sgd";
  config.lr = 0.25;
  config.momentum = 0.5;
  config.nesterov = true;
  const auto optimizer = make_optimizer(config, *linear_model().module);
  const auto& options = static_cast<torch::optim::SGDOptions&>(
      optimizer->param_groups().at(0).options());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.momentum(), 0.5);
  EXPECT_TRUE(options.nesterov());

  config.momentum = 0;
  EXPECT_ERROR(
      make_optimizer(config, *linear_model().module),
      c10::ValueError,
      "nesterov");
}

TEST(ParametersTest, EveryOptimizerNameMakesOneThatSteps) {
  for (const auto& name : optimizer_names()) {
    OptimizerConfig config;
    config.name = name;
    const auto model = linear_model();
    const auto optimizer = make_optimizer(config, *model.module);
    EXPECT_EQ(optimizer->param_groups().size(), 2U) << name;
    for (const auto& parameter : model.module->parameters()) {
      parameter.mutable_grad() = torch::ones_like(parameter);
    }
    optimizer->step();
    EXPECT_EQ(optimizer->steps_of(model.module->parameters()[0]), 1) << name;
  }
}

} // namespace
} // namespace ampkit::zoo
