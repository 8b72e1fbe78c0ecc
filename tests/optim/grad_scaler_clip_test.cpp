// Clipping within GradScaler::step, of ampkit's optimizers and of others,
// against gradients that are unscaled and clipped by hand.

#include <functional>
#include <limits>
#include <optional>

#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/clip.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kScale = 1024;

/// Two weights with scaled gradients under SGD(lr = 1), ampkit's or LibTorch's.
struct World {
  std::vector<at::Tensor> weights;
  std::unique_ptr<torch::optim::Optimizer> sgd;
  GradScaler scaler{{.init_scale = kScale}};

  explicit World(bool of_ampkit) {
    torch::manual_seed(3);
    for (const int64_t rows : {4, 3}) {
      auto weight = torch::randn({rows, 5}).requires_grad_();
      weight.mutable_grad() = torch::randn({rows, 5}) * kScale;
      weights.push_back(weight);
    }
    if (of_ampkit) {
      sgd = std::make_unique<optim::SGD>(weights, optim::SGDOptions{.lr = 1});
    } else {
      sgd = std::make_unique<torch::optim::SGD>(
          weights, torch::optim::SGDOptions(1));
    }
    scaler.scale(torch::ones({}));
  }
};

/// The weights after a step with gradients that `clip` changed.
template <class Clip>
std::vector<at::Tensor> by_hand(const Clip& clip) {
  World world(false);
  for (const auto& weight : world.weights) {
    weight.mutable_grad().div_(kScale);
  }
  clip(world.weights);
  world.sgd->step();
  return world.weights;
}

class GradScalerClip : public ::testing::TestWithParam<bool> {
 protected:
  template <class Clip>
  void expect_as_by_hand(const StepOptions& options, const Clip& clip) {
    World world(GetParam());
    const auto result = world.scaler.step(*world.sgd, options);
    EXPECT_TRUE(result.stepped());
    const auto expected = by_hand(clip);
    const auto unclipped = by_hand([](const auto&) {});
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(world.weights[i].allclose(expected[i], 1e-6, 1e-6));
      EXPECT_FALSE(expected[i].allclose(unclipped[i], 1e-3, 1e-3))
          << "the limit counted";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, GradScalerClip, ::testing::Bool(), [](const auto& of) {
      return of.param ? std::string("Ampkit") : std::string("LibTorch");
    });

TEST_P(GradScalerClip, ScaledGradientsAreNotWhatIsClipped) {
  for (const double type : {1.0, 2.0, kInfinity}) {
    expect_as_by_hand(
        {.max_norm = 0.75, .norm_type = type}, [&](const auto& weights) {
          torch::nn::utils::clip_grad_norm_(weights, 0.75, type);
        });
  }
}

TEST_P(GradScalerClip, NormsAreThoseOfTheUnscaledGradients) {
  for (const double type : {1.0, 2.0, kInfinity}) {
    World world(GetParam());
    std::vector<at::Tensor> flat;
    for (const auto& weight : world.weights) {
      flat.push_back(weight.grad().flatten() / kScale);
    }
    const auto norm = at::linalg_vector_norm(at::cat(flat), type);
    const auto result = world.scaler.step(
        *world.sgd, {.max_norm = kInfinity, .norm_type = type});
    EXPECT_NEAR(result.grad_norm() / norm.item<double>(), 1, 1e-6) << type;
  }
}

TEST_P(GradScalerClip, ByValue) {
  expect_as_by_hand({.clip_value = 0.3}, [](const auto& weights) {
    optim::clip_grad_value_(weights, 0.3);
  });
}

TEST_P(GradScalerClip, ByNormAndThenByValue) {
  expect_as_by_hand(
      {.max_norm = 2, .clip_value = 0.3}, [](const auto& weights) {
        torch::nn::utils::clip_grad_norm_(weights, 2);
        optim::clip_grad_value_(weights, 0.3);
      });
}

TEST_P(GradScalerClip, Adaptively) {
  const AdaptiveClip clip{.clip_factor = 0.1};
  expect_as_by_hand({.adaptive_clip = clip}, [&](const auto& weights) {
    optim::adaptive_clip_grad_(weights, clip);
  });
}

/// One backward pass of a scaled loss.
void backward(World& world) {
  world.sgd->zero_grad();
  at::Tensor loss = torch::zeros({});
  for (const auto& weight : world.weights) {
    loss = loss + weight.square().sum();
  }
  world.scaler.scale(loss).backward();
}

void expect_clipping(const World& world, bool refused) {
  const std::vector<std::function<void()>> ways{
      [&] { optim::clip_grad_norm_(world.weights, 0.5); },
      [&] { optim::clip_grad_value_(world.weights, 0.5); },
      [&] { optim::adaptive_clip_grad_(world.weights); }};
  for (const auto& clip : ways) {
    const auto before = world.weights[1].grad().clone();
    if (refused) {
      EXPECT_ERROR(
          clip(),
          c10::Error,
          "clip",
          "the gradient of parameter 0 is still multiplied by a loss scale",
          "unscale_(optimizer) first");
      EXPECT_TRUE(world.weights[1].grad().equal(before));
    } else {
      EXPECT_NO_THROW(clip());
    }
  }
}

TEST_P(GradScalerClip, ClippingWhatIsStillScaledIsRefused) {
  World world(GetParam());
  for (int step = 0; step < 3; ++step) {
    backward(world);
    if (step > 0) { // the first step is how the scaler gets to know them
      expect_clipping(world, true);
    }
    world.scaler.unscale_(*world.sgd);
    expect_clipping(world, false);
    world.scaler.step(*world.sgd);
    world.scaler.update();
    expect_clipping(world, false);
    backward(world);
    world.scaler.step(*world.sgd);
    world.scaler.update();
  }
  backward(world);
  world.scaler.abandon();
  expect_clipping(world, false);
}

TEST_P(GradScalerClip, NamedParametersAreRefusedFromTheFirstStepOn) {
  World world(GetParam());
  torch::nn::Module module;
  module.register_parameter("first", world.weights[0]);
  module.register_parameter("second", world.weights[1]);
  world.scaler.name_parameters(module);
  backward(world);
  expect_clipping(world, true);
}

TEST_P(GradScalerClip, GradientsThatNobodyScaledAreNotRefused) {
  World scaled(GetParam());
  World other(GetParam());
  backward(scaled);
  scaled.scaler.step(*scaled.sgd);
  scaled.scaler.update();
  backward(scaled);
  expect_clipping(other, false);
  expect_clipping(scaled, true);
  scaled.scaler = GradScaler({.enabled = false});
  backward(scaled);
  scaled.scaler.step(*scaled.sgd);
  backward(scaled);
  expect_clipping(scaled, false);
}

TEST_P(GradScalerClip, AnOverflowStillSkipsUnchanged) {
  for (const StepOptions& options : std::vector<StepOptions>{
           {.max_norm = 1, .norm_type = 1},
           {.max_norm = 1, .norm_type = kInfinity},
           {.clip_value = 1},
           {.adaptive_clip = AdaptiveClip{}}}) {
    World world(GetParam());
    const auto before = world.weights[0].detach().clone();
    world.weights[1].mutable_grad()[0][0] =
        std::numeric_limits<float>::infinity();
    EXPECT_TRUE(world.scaler.step(*world.sgd, options).skipped());
    EXPECT_TRUE(world.weights[0].equal(before));
  }
}

TEST_P(GradScalerClip, OptionsAreChecked) {
  World world(GetParam());
  const auto before = world.weights[0].detach().clone();
  const auto step = [&](const StepOptions& options) {
    world.scaler.step(*world.sgd, options);
  };
  EXPECT_ERROR(
      step({.max_norm = 1, .norm_type = 3}),
      c10::ValueError,
      "norm_type must be 1, 2 or infinity, got 3");
  EXPECT_ERROR(step({.clip_value = -1}), c10::ValueError, "clip_value");
  EXPECT_ERROR(
      step({.adaptive_clip = AdaptiveClip{.eps = 0}}), c10::ValueError, "eps");
  EXPECT_ERROR(
      step({.clip_value = 1, .adaptive_clip = AdaptiveClip{}}),
      c10::ValueError,
      "neither");
  EXPECT_TRUE(world.weights[0].equal(before));
}

} // namespace
} // namespace ampkit
