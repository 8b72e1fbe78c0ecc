// Weights, outputs and gradients: tests/oracle/test_models.py.
#include <ampkit/zoo/models/model.h>

#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::zoo {
namespace {

TEST(ModelTest, EveryNameMakesANetworkOfTheSizesAskedFor) {
  for (const auto& name : model_names()) {
    const auto model = make_model(
        {.name = name,
         .stem = Stem::small,
         .in_channels = 2,
         .num_classes = 7});
    const auto out = model.forward(torch::zeros({2, 2, 16, 16}));
    EXPECT_EQ(out.sizes(), at::IntArrayRef({2, 7})) << name;
    EXPECT_GT(count_parameters(model), 300'000) << name;
  }
}

TEST(ModelTest, StemDecidesHowMuchIsLeftOfASmallImage) {
  // What reaches the first stage, seen through the shape its gradient needs:
  // the imagenet stem reduces 28 pixels to 7, the small one keeps them.
  const auto stem_weight = [](Stem stem) {
    const auto model = make_model({.name = "resnet18", .stem = stem});
    return model.module->named_parameters()["conv1.weight"].size(2);
  };
  EXPECT_EQ(stem_weight(Stem::imagenet), 7);
  EXPECT_EQ(stem_weight(Stem::small), 3);
}

TEST(ModelTest, CopiesShareTheNetwork) {
  const auto model = make_model({.name = "resnet_small", .in_channels = 1});
  const Model copy =
      model; // NOLINT(performance-unnecessary-copy-initialization)
  torch::NoGradGuard no_grad;
  model.module->parameters().back().fill_(3);
  EXPECT_TRUE(copy.module->parameters().back().eq(3).all().item<bool>());
}

TEST(ModelTest, OptionsOutOfRangeAreNamed) {
  EXPECT_ERROR(
      make_model({.name = "resnet19"}),
      c10::ValueError,
      "make_model: unknown name, got 'resnet19'",
      "resnet18, resnet34, resnet50, resnet_small");
  EXPECT_ERROR(
      make_model({.in_channels = 0}),
      c10::ValueError,
      "make_model: in_channels must be >= 1, got 0");
  EXPECT_ERROR(
      make_model({.num_classes = -1}),
      c10::ValueError,
      "make_model: num_classes must be >= 1, got -1");
}

} // namespace
} // namespace ampkit::zoo
