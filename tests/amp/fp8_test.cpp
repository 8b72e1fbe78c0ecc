#include <ampkit/amp/fp8.h>

#include <ampkit/amp/grad_scaler.h>

#include "amp/fp8_state.h"
#include "amp/fp8_support.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit {
namespace {

const Fp8Recipe kRecipes[] = {
    Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row_wise};

torch::Tensor quantized(float value, torch::Dtype dtype, float scale = 1) {
  return fp8_quantize(torch::full({1}, value), dtype, torch::full({}, scale))
      .to(torch::kFloat);
}

TEST(Fp8QuantizeTest, InfAndNanAreNotHiddenBySaturation) {
  for (const auto dtype : {torch::kFloat8_e4m3fn, torch::kFloat8_e5m2}) {
    for (const float value : {kInf, -kInf, kNan}) {
      EXPECT_FALSE(quantized(value, dtype).isfinite().item<bool>()) << value;
    }
  }
  EXPECT_EQ(quantized(-kInf, torch::kFloat8_e5m2).item<float>(), -kInf);
}

TEST(Fp8QuantizeTest, FiniteValuesBeyondTheRangeDoNotBecomeNan) {
  for (const float value : {449.0F, 480.0F, 1e5F, 3e38F}) {
    EXPECT_EQ(quantized(value, torch::kFloat8_e4m3fn).item<float>(), 448);
    EXPECT_EQ(quantized(-value, torch::kFloat8_e4m3fn).item<float>(), -448);
  }
  EXPECT_EQ(quantized(1e5F, torch::kFloat8_e5m2).item<float>(), 57344);
  // Beyond FP32 once scaled, but finite when it arrived.
  EXPECT_EQ(quantized(3e38F, torch::kFloat8_e5m2, 8).item<float>(), 57344);
}

// Whatever dtype the values come in; 1e300 is finite, though not in FP32.
TEST(Fp8QuantizeTest, OverflowIsToldFromInfInEveryInputDtype) {
  const auto scale = torch::ones({});
  for (const auto dtype : {torch::kFloat8_e4m3fn, torch::kFloat8_e5m2}) {
    for (const auto input :
         {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble}) {
      const double largest = input == torch::kHalf     ? 65504
                             : input == torch::kDouble ? 1e300
                                                       : 3e38;
      const auto values = torch::tensor({largest, -largest}, torch::kDouble);
      const auto limit = dtype == torch::kFloat8_e4m3fn ? 448.0F : 57344.0F;
      EXPECT_TRUE(fp8_quantize(values.to(input), dtype, scale)
                      .to(torch::kFloat)
                      .equal(torch::tensor({limit, -limit})))
          << input << dtype;
      const auto bad = torch::tensor({kInf, -kInf, kNan}).to(input);
      EXPECT_FALSE(fp8_quantize(bad, dtype, scale)
                       .to(torch::kFloat)
                       .isfinite()
                       .any()
                       .item<bool>())
          << input << dtype;
    }
  }
}

TEST(Fp8QuantizeTest, NegativeZeroKeepsItsSign) {
  for (const auto dtype : {torch::kFloat8_e4m3fn, torch::kFloat8_e5m2}) {
    EXPECT_TRUE(quantized(-0.0F, dtype).signbit().item<bool>());
    EXPECT_FALSE(quantized(0.0F, dtype).signbit().item<bool>());
  }
}

TEST(Fp8QuantizeTest, WrongDtypesThrow) {
  const auto one = torch::ones({});
  EXPECT_ERROR(
      fp8_quantize(one, torch::kHalf, one),
      c10::ValueError,
      "fp8_quantize",
      "Float8_e4m3fn or Float8_e5m2, got Half");
  EXPECT_ERROR(
      fp8_quantize(torch::ones({}, torch::kInt), torch::kFloat8_e5m2, one),
      c10::ValueError,
      "got Int and Float");
  EXPECT_ERROR(
      fp8_scale(one, torch::kFloat), c10::ValueError, "fp8_scale", "got Float");
}

TEST(Fp8ScaleTest, AmaxOfZeroOrInfGivesAFiniteScale) {
  const auto amax = torch::tensor({0.0F, kInf, kNan, 448.0F, 1.0F});
  const auto scale = fp8_scale(amax, torch::kFloat8_e4m3fn);
  EXPECT_TRUE(scale.equal(torch::tensor(
      {static_cast<float>(448 / 1e-12), 1.0F, 1.0F, 1.0F, 448.0F})))
      << scale;
  EXPECT_EQ(
      fp8_scale(torch::ones({}), torch::kFloat8_e5m2, true).item<float>(),
      32768);
}

TEST(Fp8LinearsTest, OptionsOutOfRangeNameTheField) {
  const std::vector<torch::Tensor> none;
  EXPECT_ERROR(
      Fp8Linears(none, {.amax_history_len = 0}),
      c10::ValueError,
      "amax_history_len must be >= 1, got 0");
  EXPECT_ERROR(
      Fp8Linears(none, {.margin = 65}), c10::ValueError, "margin", "65");
  EXPECT_ERROR(
      Fp8Linears(
          none,
          {.recipe = Fp8Recipe::delayed, .round_scales_to_power_of_2 = true}),
      c10::ValueError,
      "round_scales_to_power_of_2");
}

TEST(Fp8LinearsTest, ExcludedLayersAreListedWithTheReason) {
  torch::nn::Sequential model(
      torch::nn::Linear(32, 64), torch::nn::Linear(64, 10));
  model->push_back("head", torch::nn::Linear(64, 16));
  Fp8Linears fp8(*model, {.filter_fqns = {"head"}});
  const auto layers = fp8.layers();
  ASSERT_EQ(layers.size(), 3); // biases are not listed
  EXPECT_EQ(layers[0].name, "0.weight");
  EXPECT_EQ(layers[0].excluded, "");
  EXPECT_THAT(layers[1].excluded, ::testing::HasSubstr("[10, 64]"));
  EXPECT_THAT(layers[2].excluded, ::testing::HasSubstr("'head'"));

  const auto weight = model->named_parameters()["head.weight"];
  EXPECT_ERROR(
      fp8.linear(torch::ones({2, 64}), weight), c10::Error, "layers()");
  fp8.linear(torch::ones({2, 32}), model->parameters()[0]);
  EXPECT_EQ(fp8.layers()[0].products, 1);
  EXPECT_EQ(fp8.layers()[2].products, 0);
}

// As C++'s nn::Linear calls: addmm(bias, x, w.t()) and matmul(x, w.t()).
TEST(Fp8LinearsTest, TakesAWeightBothWaysAndLeavesTheRest) {
  OneLayer layer({});
  const auto override = linear_override(layer.fp8);
  const auto product = [&](const torch::Tensor& x, const torch::Tensor& w) {
    return override->product(x, w, std::nullopt, torch::kBFloat16);
  };
  const auto x = layer.input.detach();
  EXPECT_TRUE(equal_bits(
      product(x, layer.weight.t()), layer.fp8.linear(x, layer.weight)));
  EXPECT_EQ(
      product(x.view({2, 2, 32}), layer.weight.t()).sizes(),
      (at::IntArrayRef{2, 2, 16}));
  EXPECT_EQ(
      product(torch::ones({3, 16}), layer.weight).sizes(),
      (at::IntArrayRef{3, 32}));
  // A part of the weight, another tensor, an empty batch, a vector, FP64.
  EXPECT_FALSE(product(x, layer.weight.slice(0, 0, 8).t()).defined());
  EXPECT_FALSE(product(x, layer.weight.detach().clone().t()).defined());
  EXPECT_FALSE(product(x.slice(0, 0, 0), layer.weight.t()).defined());
  EXPECT_FALSE(product(x[0], layer.weight.t()).defined());
  EXPECT_FALSE(product(x.to(torch::kDouble), layer.weight.t()).defined());
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(product(x, layer.weight.t()).defined());
  }
  layer.train(); // with the copy that inference left
  EXPECT_TRUE(layer.weight.grad().defined());
}

TEST(Fp8LinearsTest, ResultIsNearTheFp32Product) {
  for (const Fp8Recipe recipe : kRecipes) {
    OneLayer layer({.recipe = recipe});
    layer.train();
    layer.fp8.update();
    const auto exact =
        torch::nn::functional::linear(layer.input, layer.weight, layer.bias);
    const auto error =
        (layer.forward().to(torch::kFloat) - exact).norm() / exact.norm();
    // E4M3 rounds each factor by up to 2^-4.
    EXPECT_LT(error.item<double>(), 0.0625) << static_cast<int>(recipe);
    EXPECT_GT(error.item<double>(), 0.004); // it was in FP8
  }
}

TEST(Fp8LinearsTest, GradientsAreNearTheFp32OnesAndTheBiasSumIsExact) {
  for (const Fp8Recipe recipe : kRecipes) {
    OneLayer layer({.recipe = recipe});
    const auto gradient = OneLayer::seeded({4, 16}).to(torch::kBFloat16);
    layer.train(gradient);
    const auto g = gradient.to(torch::kFloat);
    const auto near = [](const torch::Tensor& got, const torch::Tensor& want) {
      return ((got - want).norm() / want.norm()).item<double>() < 0.15;
    };
    // E5M2 rounds by up to 2^-3.
    EXPECT_TRUE(near(layer.weight.grad(), g.t().mm(layer.input.detach())));
    EXPECT_TRUE(near(layer.input.grad(), g.mm(layer.weight.detach())));
    EXPECT_TRUE(layer.bias.grad().equal(g.sum(0)));
    EXPECT_EQ(layer.weight.grad().scalar_type(), torch::kFloat);
  }
}

TEST(Fp8LinearsTest, ChangedWeightIsQuantizedAgain) {
  OneLayer layer({.recipe = Fp8Recipe::delayed});
  const auto before = layer.forward();
  {
    const torch::NoGradGuard no_grad;
    layer.weight.add_(1);
  }
  EXPECT_FALSE(layer.forward().equal(before));
  const auto after = layer.forward();
  layer.weight.set_data(layer.weight.detach() + 1); // another storage
  EXPECT_FALSE(layer.forward().equal(after));
}

TEST(Fp8LinearsTest, SecondDerivativeIsRefused) {
  OneLayer layer({});
  const auto loss = layer.forward().sum();
  EXPECT_ERROR(
      torch::autograd::grad({loss}, {layer.weight}, {}, {}, true),
      c10::Error,
      "no second derivative");
}

TEST(Fp8LinearsTest, FrozenWeightKeepsNoInput) {
  OneLayer layer({});
  layer.weight.requires_grad_(false);
  layer.train();
  EXPECT_FALSE(layer.weight.grad().defined());
  EXPECT_TRUE(layer.input.grad().defined());
}

TEST(Fp8LinearsTest, NonFiniteGradientStaysVisibleToGradScaler) {
  for (const Fp8Recipe recipe : kRecipes) {
    for (const float bad : {kInf, -kInf, kNan}) {
      OneLayer layer({.recipe = recipe});
      torch::optim::SGD sgd({layer.weight}, torch::optim::SGDOptions(0.1));
      GradScaler scaler;
      scaler.scale(torch::ones({}));
      auto gradient = torch::ones({4, 16});
      gradient[1][2] = bad;
      layer.train(gradient);
      EXPECT_FALSE(layer.input.grad().isfinite().all().item<bool>());
      EXPECT_TRUE(scaler.step(sgd).skipped()) << bad;
    }
  }
}

TEST(Fp8LinearsTest, NonFiniteInputStaysVisible) {
  for (const Fp8Recipe recipe : kRecipes) {
    OneLayer layer({.recipe = recipe});
    const torch::NoGradGuard no_grad;
    layer.input[2][3] = kInf;
    const auto finite = layer.forward().isfinite();
    EXPECT_FALSE(finite[2].any().item<bool>());
    EXPECT_TRUE(finite[1].all().item<bool>());
  }
}

// 16 overlapping classes, new samples each step, trained alike with and without
// FP8: the mean loss of the last 20 steps of 100.
double trained_loss(const std::optional<Fp8Options>& options) {
  torch::manual_seed(3);
  const auto centres = torch::randn({16, 16});
  torch::nn::Linear first(16, 64);
  torch::nn::Linear second(64, 16);
  std::vector<torch::Tensor> parameters = first->parameters();
  parameters.push_back(second->weight);
  parameters.push_back(second->bias);
  Fp8Linears fp8(parameters, options.value_or(Fp8Options()));
  const auto linear = [&](const torch::Tensor& input,
                          torch::nn::Linear& layer) {
    return options
               ? fp8.linear(input, layer->weight, layer->bias).to(torch::kFloat)
               : layer->forward(input);
  };
  torch::optim::Adam adam(parameters, torch::optim::AdamOptions(3e-3));
  double sum = 0;
  for (int step = 0; step < 100; ++step) {
    const auto labels = torch::randint(16, {256}, torch::kLong);
    const auto x =
        centres.index_select(0, labels) + torch::randn({256, 16}) * 2;
    adam.zero_grad();
    const auto loss = torch::cross_entropy_loss(
        linear(torch::relu(linear(x, first)), second), labels);
    loss.backward();
    adam.step();
    fp8.update();
    sum += step < 80 ? 0.0 : loss.item<double>();
  }
  return sum / 20;
}

TEST(Fp8LinearsTest, SmallNetworkEndsWithinOnePercentOfTheFp32Loss) {
  const double fp32 = trained_loss(std::nullopt);
  EXPECT_LT(fp32, 2); // it learnt: guessing costs log(16) = 2.77
  for (const Fp8Recipe recipe : kRecipes) {
    const double loss = trained_loss(Fp8Options{.recipe = recipe});
    EXPECT_NEAR(loss, fp32, 0.01 * fp32) << static_cast<int>(recipe);
    EXPECT_NE(loss, fp32); // it was in FP8
  }
}

} // namespace
} // namespace ampkit
