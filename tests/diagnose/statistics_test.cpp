#include <ampkit/diagnose/statistics.h>

#include <cmath>
#include <map>
#include <tuple>

#include <ampkit/amp/autocast.h>
#include <ampkit/diagnose/magnitudes.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "diagnose/small_nets.h"
#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MagnitudesTest, BinsAreThoseOfFrexp) {
  torch::manual_seed(4);
  const auto wide = torch::randn({4000}, torch::kDouble) *
                    torch::pow(2.0, torch::randint(-60, 60, {4000}));
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const auto values = wide.to(dtype);
    Magnitudes magnitudes;
    magnitudes.add(values);
    const auto exponents =
        std::get<1>(at::frexp(values.to(at::kDouble))) - 1; // 0.5 <= mantissa
    int64_t all = 0;
    for (int i = Magnitudes::kLowest; i <= Magnitudes::kHighest; ++i) {
      const auto expected = exponents.eq(i).sum().item<int64_t>();
      EXPECT_EQ(magnitudes.count(i), expected) << dtype << " " << i;
      all += expected;
    }
    EXPECT_EQ(all, 4000);
    EXPECT_EQ(magnitudes.amax(), values.abs().max().item<double>());
  }
}

TEST(MagnitudesTest, ZerosAndWhatIsNotFiniteAreApart) {
  Magnitudes magnitudes;
  magnitudes.add(torch::tensor({0.0F, -0.0F, INFINITY, -INFINITY, NAN, 3.0F}));
  EXPECT_EQ(magnitudes.elements(), 6);
  EXPECT_EQ(magnitudes.zeros(), 2);
  EXPECT_EQ(magnitudes.non_finite(), 3);
  EXPECT_EQ(magnitudes.count(1), 1);
  EXPECT_EQ(magnitudes.amax(), 3);
  EXPECT_EQ(magnitudes.count(500), 0);
}

TEST(MagnitudesTest, SharesAreThoseThatADtypeLoses) {
  Magnitudes magnitudes;
  // Two of five are subnormal in fp16, one is inf there; none is so in bf16.
  magnitudes.add(torch::tensor({1e-6, 3e-5, 1e-3, 1.0, 1e6, 0.0}));
  EXPECT_DOUBLE_EQ(magnitudes.share_subnormal(at::kHalf), 0.4);
  EXPECT_DOUBLE_EQ(magnitudes.share_beyond(at::kHalf), 0.2);
  EXPECT_EQ(magnitudes.share_subnormal(at::kBFloat16), 0);
  EXPECT_EQ(magnitudes.share_beyond(at::kBFloat16), 0);
  EXPECT_EQ(magnitudes.share_beyond(at::kFloat), 0);
  EXPECT_DOUBLE_EQ(magnitudes.share_below(0), 0.6);
}

TEST(MagnitudesTest, EmptyOnesHaveNoShares) {
  const Magnitudes none;
  EXPECT_EQ(none.share_below(0), 0);
  EXPECT_EQ(none.share_beyond(at::kHalf), 0);
  EXPECT_TRUE(std::isinf(none.headroom_bits(at::kHalf)));
  EXPECT_EQ(recommended_loss_scale(none), 1);
}

// Scaled by it the largest gradient fits with the margin, by twice it does not.
TEST(MagnitudesTest, RecommendedScaleIsTheLargestThatFits) {
  for (const double largest : {3e-7, 0.02, 1.0, 700.0}) {
    Magnitudes magnitudes;
    magnitudes.add(torch::tensor({largest, -largest / 3}, torch::kDouble));
    for (const int margin : {0, 3}) {
      const double scale = recommended_loss_scale(magnitudes, margin);
      const double limit = 65504 / std::exp2(margin);
      EXPECT_LE(largest * scale, limit);
      EXPECT_GT(2 * largest * scale, limit);
    }
  }
}

TEST(MagnitudesTest, WrongArgumentsAreErrors) {
  Magnitudes magnitudes;
  EXPECT_ERROR(
      magnitudes.add(torch::ones({2}, torch::kLong)), c10::ValueError, "Long");
  EXPECT_EQ(magnitudes.elements(), 0);
  EXPECT_ERROR(
      magnitudes.headroom_bits(at::kDouble), c10::ValueError, "Double");
  EXPECT_ERROR(
      recommended_loss_scale(magnitudes, -1), c10::ValueError, "margin_bits");
}

std::map<std::string, LayerStatistics> by_name(const Statistics& statistics) {
  std::map<std::string, LayerStatistics> layers;
  for (const auto& layer : statistics.layers()) {
    layers.emplace(layer.module, layer);
  }
  return layers;
}

TEST(StatisticsTest, CountsWhatEachLayerGivesAndGets) {
  torch::manual_seed(2);
  SmallConvNet net;
  at::Tensor pooled;
  net.pooled = [&](const at::Tensor& x) {
    pooled = x;
    return x;
  };
  Statistics statistics(net, {.interval = 1});
  at::Tensor logits;
  {
    auto step = statistics.step(64);
    logits = net.forward(torch::randn({6, 1, 8, 8}));
    logits.retain_grad();
    (64 * logits.square().sum()).backward();
    step.before_update();
  }
  auto layers = by_name(statistics);
  EXPECT_EQ(layers.size(), 4U);
  const auto& fc = layers.at("fc");
  EXPECT_EQ(fc.dtype, at::kFloat);
  EXPECT_EQ(fc.outputs.elements(), 6 * 4); // of linear, not of addmm as well
  EXPECT_EQ(fc.outputs.amax(), logits.abs().max().item<double>());
  EXPECT_EQ(fc.output_gradients.elements(), 6 * 4);
  EXPECT_EQ(
      fc.output_gradients.amax(),
      logits.grad().abs().max().item<double>() / 64);
  EXPECT_EQ(fc.weights.elements(), 8 * 4 + 4);
  EXPECT_EQ(
      fc.parameter_gradients.amax(),
      std::max(
          net.fc->weight.grad().abs().max().item<double>(),
          net.fc->bias.grad().abs().max().item<double>()) /
          64);
  EXPECT_EQ(layers.at("conv1").outputs.elements(), 6 * 4 * 8 * 8);
  EXPECT_GT(layers.at("bn1").output_gradients.amax(), 0);
  EXPECT_TRUE(std::isnan(fc.update_ratio)); // nothing was updated
}

TEST(StatisticsTest, DtypeIsThatOfTheRegion) {
  SmallConvNet net;
  Statistics statistics(net, {.interval = 1});
  {
    auto step = statistics.step();
    const Autocast autocast(torch::kCPU, at::kHalf);
    net.forward(torch::randn({2, 1, 8, 8}));
  }
  EXPECT_EQ(by_name(statistics).at("fc").dtype, at::kHalf);
}

TEST(StatisticsTest, UpdateRatioIsThatOfTheWeights) {
  torch::manual_seed(2);
  torch::nn::Linear net(8, 8);
  torch::optim::SGD sgd(net->parameters(), 0.125);
  Statistics statistics(*net, {.interval = 1});
  const auto before = torch::cat({net->weight.flatten(), net->bias}).detach();
  {
    auto step = statistics.step();
    net->forward(torch::randn({4, 8})).square().sum().backward();
    step.before_update();
    sgd.step();
    step.after_update();
  }
  const auto after = torch::cat({net->weight.flatten(), net->bias}).detach();
  const double expected =
      ((after - before).norm() / before.norm()).item<double>();
  EXPECT_NEAR(statistics.layers()[0].update_ratio, expected, 1e-6 * expected);
  EXPECT_EQ(statistics.layers()[0].swallowed, 0);
}

// The share that rounding swallows, of a bf16 network with and without masters.
double swallowed_in_bf16(bool masters) {
  torch::manual_seed(2);
  torch::nn::Linear net(64, 64);
  net->to(at::kBFloat16);
  optim::AdamW adamw(net->parameters(), {.lr = 1e-4});
  adamw.keep_masters(masters);
  StatisticsOptions options{.interval = 1};
  if (masters) {
    options.master = [&](const at::Tensor& p) { return adamw.master(p); };
  }
  Statistics statistics(*net, options);
  for (int i = 0; i < 5; ++i) {
    adamw.zero_grad();
    auto step = statistics.step();
    const auto x = torch::randn({8, 64}, torch::kBFloat16);
    net->forward(x).square().mean().backward();
    step.before_update();
    adamw.step();
    step.after_update();
  }
  return statistics.layers()[0].swallowed;
}

TEST(StatisticsTest, SwallowedUpdatesAreSeenAndMastersSwallowNone) {
  EXPECT_GT(swallowed_in_bf16(/*masters=*/false), 0.5);
  EXPECT_EQ(swallowed_in_bf16(/*masters=*/true), 0);
}

TEST(StatisticsTest, BetweenTheStepsNothingIsCounted) {
  torch::nn::Linear net(4, 4);
  Statistics statistics(*net, {.interval = 3, .history = 2});
  std::vector<bool> looked;
  for (int i = 0; i < 10; ++i) {
    auto step = statistics.step();
    looked.push_back(step.looked_at());
    net->forward(torch::full({1, 4}, static_cast<float>(i)));
    step.before_update();
    step.after_update();
  }
  EXPECT_THAT(
      looked,
      ElementsAre(
          true, false, false, true, false, false, true, false, false, true));
  const auto& layer = statistics.layers()[0];
  EXPECT_EQ(layer.outputs.elements(), 4);
  EXPECT_EQ(layer.amax_history.size(), 2U);
  EXPECT_EQ(layer.amax_history.back(), layer.outputs.amax());
}

TEST(StatisticsTest, ScaleIsRecommendedFromTheGradients) {
  torch::nn::Linear net(4, 4);
  Statistics statistics(*net, {.interval = 1});
  EXPECT_EQ(statistics.recommended_scale(), 1);
  {
    auto step = statistics.step(1024);
    (1024 * 1e-6 * net->forward(torch::ones({1, 4})).sum()).backward();
    step.before_update();
  }
  const double largest = 1e-6; // of outputs, weights and biases alike
  const double scale = statistics.recommended_scale();
  EXPECT_LE(largest * scale, 65504 / 8.0 * (1 + 1e-6));
  EXPECT_GT(2 * largest * scale, 65504 / 8.0);
}

TEST(StatisticsTest, TableHasALineForEachLayer) {
  SmallConvNet net;
  Statistics statistics(net, {.interval = 1});
  {
    auto step = statistics.step();
    net.forward(torch::randn({2, 1, 8, 8})).sum().backward();
    step.before_update();
  }
  const auto table = to_string(statistics.layers());
  for (const auto* name : {"conv1", "bn1", "conv2", "fc", "headroom"}) {
    EXPECT_THAT(table, HasSubstr(name));
  }
}

TEST(StatisticsTest, WrongCallsAreErrors) {
  torch::nn::Linear net(4, 4);
  EXPECT_ERROR(
      Statistics(*net, {.interval = 0}), c10::ValueError, "interval", "got 0");
  EXPECT_ERROR(
      Statistics(*net, {.history = 0}), c10::ValueError, "history", "got 0");
  Statistics statistics(*net, {.interval = 1});
  EXPECT_ERROR(
      std::ignore = statistics.step(0), c10::ValueError, "scale", "got 0");
  const auto step = statistics.step();
  EXPECT_ERROR(
      std::ignore = statistics.step(), c10::Error, "has a step already");
}

} // namespace
} // namespace ampkit::diagnose
