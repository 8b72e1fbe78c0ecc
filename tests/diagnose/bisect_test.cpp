#include <ampkit/diagnose/bisect.h>

#include <cmath>
#include <random>

#include <ampkit/io/rng_state.h>
#include <torch/torch.h>

#include "io/temporary_folder.h"
#include "small_nets.h"
#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

namespace nn = torch::nn;

/// 48 layers, of which some give numbers near 3e5: too many for fp16, not for
/// fp32 or bf16.
struct LayersThatOverflow : nn::Module {
  explicit LayersThatOverflow(const std::vector<int>& planted)
      : sizes(48, 1.0) {
    torch::manual_seed(3);
    for (int i = 0; i < 48; ++i) {
      layers->push_back(nn::Linear(8, 8));
    }
    register_module("h", layers);
    const torch::NoGradGuard no_grad;
    for (const int i : planted) {
      sizes[i] = 3e5;
      layers[i]->as<nn::Linear>()->weight.mul_(sizes[i]);
      layers[i]->as<nn::Linear>()->bias.fill_(sizes[i]);
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto y = layers[i]->as<nn::Linear>()->forward(x);
      x = x + y / (10 * sizes[i]);
    }
    return x;
  }
  nn::ModuleList layers;
  std::vector<double> sizes;
};

std::vector<std::string> paths(const std::vector<int>& layers) {
  std::vector<std::string> result;
  for (const int i : layers) {
    result.push_back("h." + std::to_string(i));
  }
  return result;
}

BisectOptions in_fp16() {
  return {.precision = Precision::fp16_mixed()};
}

class BisectOf48Layers : public testing::TestWithParam<std::vector<int>> {};

TEST_P(BisectOf48Layers, FindsThePlantedLayersInAtMost40Runs) {
  LayersThatOverflow net(GetParam());
  const auto x = torch::randn({4, 8});
  auto options = in_fp16();
  options.search_ops = false;
  const auto found = bisect_precision(
      net,
      single_pass(net, [&] { return net.forward(x).square().mean(); }),
      options);
  EXPECT_EQ(found.layers.end, SearchEnd::found);
  EXPECT_EQ(found.layers.chosen, paths(GetParam()));
  EXPECT_LE(found.layers.runs, 40);
  EXPECT_FALSE(found.without.finite);
  EXPECT_TRUE(found.with.finite);
  EXPECT_LE(found.with.loss, options.bounds.loss);
  EXPECT_LE(found.with.values, options.bounds.values);
}

INSTANTIATE_TEST_SUITE_P(
    Planted,
    BisectOf48Layers,
    testing::Values(
        std::vector<int>{0},
        std::vector<int>{47},
        std::vector<int>{20},
        std::vector<int>{3, 31},
        std::vector<int>{10, 11},
        std::vector<int>{1, 9, 17, 30, 46},
        std::vector<int>{43, 44, 45, 46, 47}));

TEST(BisectTest, ThePolicyItWritesCuresTheRunThatReadsIt) {
  LayersThatOverflow net({5, 6});
  const auto x = torch::randn({4, 8});
  const auto run =
      single_pass(net, [&] { return net.forward(x).square().mean(); });
  const auto found = bisect_precision(net, run, in_fp16());
  const io::TemporaryFolder folder;
  const auto file = folder.path() + "/cure.toml";
  save_precision_policy(file, found.policy);
  const auto policy = load_precision_policy(file);
  const auto cured = run(at::kCPU, Precision::fp16_mixed(), policy.bind(net));
  EXPECT_TRUE(std::isfinite(cured.losses.front()));
  const auto ill = run(at::kCPU, Precision::fp16_mixed(), {});
  EXPECT_FALSE(std::isfinite(ill.losses.front()));
}

TEST(BisectTest, AnOpThatOverflowsIsFoundAmongThoseThatRan) {
  torch::manual_seed(0);
  SmallConvNet net;
  // 16 bits hold e to the power of 11.
  net.pooled = [](const at::Tensor& y) {
    return torch::exp(y * 0 + 12.0) * 1e-6;
  };
  const auto x = torch::randn({4, 1, 8, 8});
  const auto found = bisect_precision(
      net,
      single_pass(net, [&] { return net.forward(x).square().mean(); }),
      in_fp16());
  EXPECT_EQ(found.ops.end, SearchEnd::found);
  EXPECT_EQ(found.ops.chosen, std::vector<std::string>{"exp"});
  EXPECT_THAT(to_string(found), testing::HasSubstr("exp"));
}

TEST(BisectTest, AHealthyNetNeedsNothing) {
  torch::manual_seed(0);
  SmallTransformer net;
  const auto tokens = torch::randint(0, 32, {2, 8}, at::kLong);
  const auto found = bisect_precision(net, single_pass(net, [&] {
                                        return torch::cross_entropy_loss(
                                            net.forward(tokens).flatten(0, 1),
                                            tokens.flatten());
                                      }));
  EXPECT_EQ(found.layers.end, SearchEnd::none_needed);
  EXPECT_EQ(found.layers.runs, 1);
  EXPECT_EQ(found.policy, PrecisionPolicy());
  EXPECT_TRUE(found.without.finite);
}

TEST(BisectTest, BoundsDecideWhatIsStillGood) {
  torch::manual_seed(0);
  SmallTransformer net;
  const auto tokens = torch::randint(0, 32, {2, 8}, at::kLong);
  BisectOptions options;
  options.bounds = {.loss = 1e-7, .values = 1e-6}; // of bf16: layers must go
  options.search_ops = false;
  const auto found = bisect_precision(
      net,
      single_pass(
          net,
          [&] {
            return torch::cross_entropy_loss(
                net.forward(tokens).flatten(0, 1), tokens.flatten());
          }),
      options);
  EXPECT_EQ(found.layers.end, SearchEnd::found);
  EXPECT_GT(found.layers.chosen.size(), 5);
  EXPECT_LE(found.with.values, 1e-6);
  EXPECT_GT(found.without.values, 1e-6);
}

TEST(BisectTest, ARunThatFp32DoesNotCureIsAnError) {
  SmallConvNet net;
  net.pooled = [](const at::Tensor& y) { return (y * 0).log(); };
  EXPECT_ERROR(
      bisect_precision(
          net,
          single_pass(
              net,
              [&] { return net.forward(torch::ones({2, 1, 8, 8})).sum(); })),
      c10::Error,
      "the run in FP32 is not finite either",
      "diagnose::Watch");
}

TEST(BisectTest, LeavesRandomNumbersBuffersAndGradientsAsTheyWere) {
  torch::manual_seed(0);
  SmallConvNet net;
  const auto x = torch::randn({4, 1, 8, 8});
  net.fc->weight.mutable_grad() = torch::ones_like(net.fc->weight);
  const auto mean = net.bn1->running_mean.clone();
  const auto random = io::rng_state().tensor("cpu").clone();
  bisect_precision(
      net, single_pass(net, [&] {
        return torch::dropout(net.forward(x), 0.5, true).square().mean();
      }));
  EXPECT_TRUE(net.bn1->running_mean.equal(mean));
  EXPECT_TRUE(io::rng_state().tensor("cpu").equal(random));
  EXPECT_TRUE(net.fc->weight.grad().eq(1).all().item<bool>());
}

TEST(BisectTest, BadOptionsAreNamed) {
  SmallConvNet net;
  const auto run = single_pass(
      net, [&] { return net.forward(torch::ones({2, 1, 8, 8})).sum(); });
  EXPECT_ERROR(
      bisect_precision(net, run, {.bounds = {.loss = 0}}),
      c10::ValueError,
      "bounds.loss must be > 0, got 0");
  EXPECT_ERROR(
      bisect_precision(net, run, {.layers = {"conv3"}}),
      c10::ValueError,
      "conv3");
}

} // namespace
} // namespace ampkit::diagnose
