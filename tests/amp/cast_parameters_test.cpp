#include <ampkit/amp/cast_parameters.h>

#include <map>

#include <ampkit/amp/autocast.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

namespace nn = torch::nn;

using Dtypes = std::map<std::string, torch::Dtype>;

/// A norm layer that LibTorch does not have, with a layer inside.
struct RMSNormImpl : nn::Module {
  RMSNormImpl() {
    weight = register_parameter("weight", torch::ones({4}));
    inner = register_module("inner", nn::Linear(4, 4));
  }
  torch::Tensor weight;
  nn::Linear inner{nullptr};
};
TORCH_MODULE(RMSNorm);

/// Every kind of member, under names that say which.
struct ZooImpl : nn::Module {
  ZooImpl() {
    conv = register_module("conv", nn::Conv2d(2, 4, 3));
    bn = register_module("bn", nn::BatchNorm2d(4));
    ln = register_module("ln", nn::LayerNorm(nn::LayerNormOptions({4})));
    gn = register_module("gn", nn::GroupNorm(2, 4));
    in = register_module(
        "in",
        nn::InstanceNorm2d(
            nn::InstanceNormOptions(4).affine(true).track_running_stats(true)));
    rms = register_module("rms", RMSNorm());
    register_parameter("frozen", torch::ones({2}), /*requires_grad=*/false);
    register_buffer("mean", torch::ones({2}));
    register_buffer("mask", torch::ones({2}, torch::kBool));
    register_buffer("count", torch::full({}, 4099, torch::kLong));
    register_buffer("phase", torch::ones({2}, torch::kComplexFloat));
    register_buffer("fp8", torch::ones({2}).to(torch::kFloat8_e4m3fn));
    register_buffer("none", torch::Tensor());
  }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d bn{nullptr};
  nn::LayerNorm ln{nullptr};
  nn::GroupNorm gn{nullptr};
  nn::InstanceNorm2d in{nullptr};
  RMSNorm rms{nullptr};
};
TORCH_MODULE(Zoo);

template <class Module>
Dtypes dtypes_of(const Module& module) {
  Dtypes dtypes;
  for (const auto& item : module.named_parameters()) {
    dtypes[item.key()] = item.value().scalar_type();
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) {
      dtypes[item.key()] = item.value().scalar_type();
    }
  }
  return dtypes;
}

TEST(CastParametersTest, OnlyFloatingMembersOutsideNormLayersAreCast) {
  Zoo zoo;
  Dtypes expected = dtypes_of(*zoo);
  const auto changes = cast_parameters(*zoo, Precision::fp16_master());
  const std::vector<std::string> cast{
      "frozen",
      "conv.weight",
      "conv.bias",
      "rms.inner.weight",
      "rms.inner.bias"};
  std::vector<std::string> reported;
  for (const DtypeChange& change : changes) {
    EXPECT_EQ(change.from, torch::kFloat);
    EXPECT_EQ(change.to, torch::kHalf);
    reported.push_back(change.name);
    expected[change.name] = torch::kHalf;
  }
  EXPECT_EQ(reported, cast);
  EXPECT_EQ(dtypes_of(*zoo), expected);
  EXPECT_EQ(expected.at("bn.num_batches_tracked"), torch::kLong);
}

TEST(CastParametersTest, BatchCounterDoesNotStickAt2048) {
  nn::Sequential net(nn::Linear(2, 2), nn::BatchNorm1d(2));
  net[1]->as<nn::BatchNorm1d>()->num_batches_tracked.fill_(2048);
  cast_parameters(*net, Precision::fp16_master());
  const auto x = torch::randn({8, 2}).to(torch::kHalf);
  net->forward(x);
  net->forward(x);
  EXPECT_EQ(
      net[1]->as<nn::BatchNorm1d>()->num_batches_tracked.item<int64_t>(), 2050);
}

TEST(CastParametersTest, ValuesAreRoundedAndComeBackInFp32) {
  nn::Linear linear(3, 5);
  const auto before = linear->weight.detach().clone();
  cast_parameters(*linear, Precision::bf16_true());
  EXPECT_TRUE(linear->weight.equal(before.to(torch::kBFloat16)));
  const auto changes = cast_parameters(*linear, Precision::fp32());
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].from, torch::kBFloat16);
  EXPECT_TRUE(
      linear->weight.equal(before.to(torch::kBFloat16).to(torch::kFloat)));
  EXPECT_TRUE(cast_parameters(*linear, Precision::fp32()).empty());
}

TEST(CastParametersTest, BuffersGetADtypeOfTheirOwn) {
  Zoo zoo;
  Precision precision = Precision::bf16_master();
  precision.buffers = torch::kDouble;
  cast_parameters(*zoo, precision);
  const auto buffers = zoo->named_buffers();
  EXPECT_EQ(buffers["mean"].scalar_type(), torch::kDouble);
  EXPECT_EQ(buffers["mask"].scalar_type(), torch::kBool);
  EXPECT_EQ(buffers["bn.running_mean"].scalar_type(), torch::kFloat);
}

TEST(CastParametersTest, NormLayersThatWere16BitBecomeFp32) {
  nn::BatchNorm1d norm(2);
  norm->weight.set_data(norm->weight.to(torch::kHalf));
  norm->running_var.set_data(norm->running_var.to(torch::kHalf));
  cast_parameters(*norm, Precision::fp16_master());
  EXPECT_EQ(norm->weight.scalar_type(), torch::kFloat);
  EXPECT_EQ(norm->running_var.scalar_type(), torch::kFloat);
}

TEST(CastParametersTest, NormLayersCastOnRequestStillCompute) {
  nn::Sequential net(
      nn::Conv2d(1, 4, 3), nn::BatchNorm2d(4), nn::GroupNorm(2, 4));
  cast_parameters(
      *net, Precision::fp16_true(), {.keep_norm_layers_fp32 = false});
  for (const auto& parameter : net->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), torch::kHalf);
  }
  const auto* norm = net[1]->as<nn::BatchNorm2d>();
  EXPECT_EQ(norm->running_mean.scalar_type(), torch::kHalf);
  EXPECT_EQ(norm->num_batches_tracked.scalar_type(), torch::kLong);
  const auto x = torch::randn({2, 1, 8, 8}).to(torch::kHalf);
  EXPECT_TRUE(net->forward(x).isfinite().all().item<bool>());
}

TEST(CastParametersTest, PatternsKeepModulesWithAllBelow) {
  const auto two = [] {
    return nn::ModuleList(nn::Linear(2, 2), nn::Linear(2, 2));
  };
  nn::ModuleList net(two(), nn::Linear(2, 2), two());
  cast_parameters(*net, Precision::bf16_master(), {.keep_fp32 = {"0", "2.*1"}});
  const Dtypes dtypes = dtypes_of(*net);
  EXPECT_EQ(dtypes.at("0.0.weight"), torch::kFloat);
  EXPECT_EQ(dtypes.at("0.1.bias"), torch::kFloat);
  EXPECT_EQ(dtypes.at("1.weight"), torch::kBFloat16);
  EXPECT_EQ(dtypes.at("2.0.weight"), torch::kBFloat16);
  EXPECT_EQ(dtypes.at("2.1.weight"), torch::kFloat);
}

TEST(CastParametersTest, PatternThatMatchesNothingThrowsAndChangesNothing) {
  nn::Sequential net(nn::Linear(2, 2));
  for (const std::string pattern : {"1", "0.weight", "00", "*x", "0."}) {
    EXPECT_ERROR(
        cast_parameters(
            *net, Precision::bf16_master(), {.keep_fp32 = {"0", pattern}}),
        c10::ValueError,
        "keep_fp32 must name modules, got '" + pattern +
            "', which matches none of '', '0'");
  }
  EXPECT_EQ(net->parameters()[0].scalar_type(), torch::kFloat);
}

/// An embedding whose weight is the output layer's too.
struct TiedImpl : nn::Module {
  TiedImpl() {
    embedding = register_module("embedding", nn::Embedding(7, 4));
    head = register_module("head", nn::Linear(4, 7));
    shared = register_parameter("shared", torch::ones({3}));
    register_parameter("alias", shared);
    head->weight = embedding->weight; // LibTorch's registry does not see it
  }
  nn::Embedding embedding{nullptr};
  nn::Linear head{nullptr};
  torch::Tensor shared;
};
TORCH_MODULE(Tied);

TEST(CastParametersTest, TiedWeightStaysOneTensorAndIsReportedOnce) {
  Tied tied;
  const auto changes = cast_parameters(*tied, Precision::bf16_master());
  EXPECT_EQ(std::ranges::count(changes, "shared", &DtypeChange::name), 1);
  EXPECT_EQ(std::ranges::count(changes, "alias", &DtypeChange::name), 0);
  EXPECT_TRUE(tied->named_parameters()["alias"].is_same(tied->shared));
  EXPECT_TRUE(tied->head->weight.is_same(tied->embedding->weight));
  EXPECT_EQ(tied->head->weight.scalar_type(), torch::kBFloat16);
  torch::NoGradGuard no_grad;
  tied->embedding->weight.fill_(3);
  EXPECT_EQ(tied->head->weight.sum().item<float>(), 3 * 28);
}

TEST(CastParametersTest, TensorsOverOneMemoryStayOverOneMemory) {
  nn::Sequential net(nn::Embedding(7, 4), nn::Linear(4, 7));
  auto weights = net->named_parameters();
  weights["1.weight"].set_data(weights["0.weight"].detach());
  const auto changes = cast_parameters(*net, Precision::fp16_master());
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].name, "0.weight");
  EXPECT_EQ(changes[1].name, "1.bias");
  EXPECT_EQ(
      weights["0.weight"].const_data_ptr(),
      weights["1.weight"].const_data_ptr());
  EXPECT_EQ(weights["1.weight"].scalar_type(), torch::kHalf);
}

TEST(CastParametersTest, TensorThatAKeptModuleSharesIsKept) {
  nn::Sequential net(nn::Embedding(7, 4), nn::Linear(4, 7));
  auto weights = net->named_parameters();
  weights["1.weight"].set_data(weights["0.weight"].detach());
  cast_parameters(*net, Precision::fp16_master(), {.keep_fp32 = {"1"}});
  EXPECT_EQ(weights["0.weight"].scalar_type(), torch::kFloat);
}

TEST(CastParametersTest, ParameterStaysTheSameTensorWithItsFlags) {
  nn::Linear linear(3, 5);
  linear->bias.set_requires_grad(false);
  const auto handle = linear->weight;
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(1.0));
  cast_parameters(*linear, Precision::bf16_true());
  EXPECT_TRUE(linear->weight.is_same(handle));
  EXPECT_TRUE(linear->weight.requires_grad());
  EXPECT_TRUE(linear->weight.is_leaf());
  EXPECT_FALSE(linear->bias.requires_grad());
  const auto before = linear->weight.detach().clone();
  linear->forward(torch::ones({1, 3}, torch::kBFloat16)).sum().backward();
  EXPECT_EQ(linear->weight.grad().scalar_type(), torch::kBFloat16);
  sgd.step(); // made before the cast, updates what the module uses
  EXPECT_TRUE(linear->weight.equal(before - 1));
}

TEST(CastParametersTest, MemoryFormatOfAWeightStays) {
  nn::Conv2d conv(2, 4, 3);
  conv->weight.set_data(
      conv->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  cast_parameters(*conv, Precision::bf16_master());
  EXPECT_TRUE(conv->weight.is_contiguous(torch::MemoryFormat::ChannelsLast));
}

TEST(CastParametersTest, ExistingGradientThrowsAndChangesNothing) {
  nn::Sequential net(
      nn::Linear(2, 2), nn::LayerNorm(nn::LayerNormOptions({2})));
  net->forward(torch::ones({1, 2})).sum().backward();
  EXPECT_ERROR(
      cast_parameters(*net, Precision::fp16_master()),
      c10::Error,
      "cast_parameters: parameter '0.weight' has a gradient",
      "zero_grad()");
  EXPECT_EQ(net->parameters()[1].scalar_type(), torch::kFloat);
  EXPECT_TRUE(cast_parameters(*net, Precision::fp16_mixed()).empty());
  net->zero_grad();
  EXPECT_EQ(cast_parameters(*net, Precision::fp16_master()).size(), 2U);
}

TEST(CastParametersTest, DtypeThatNoModuleTrainsInThrows) {
  nn::Linear linear(2, 2);
  Precision precision;
  precision.parameters = torch::kFloat8_e4m3fn;
  EXPECT_ERROR(
      cast_parameters(*linear, precision),
      c10::ValueError,
      "precision.parameters",
      "Float8_e4m3fn");
  precision = {};
  precision.buffers = torch::kLong;
  EXPECT_ERROR(
      cast_parameters(*linear, precision),
      c10::ValueError,
      "precision.buffers",
      "Long");
}

TEST(CastParametersTest, GraphFromBeforeTheCastRefusesItsBackward) {
  nn::Linear linear(2, 2);
  const auto y = linear->forward(torch::ones({1, 2}).requires_grad_());
  cast_parameters(*linear, Precision::bf16_true());
  EXPECT_ERROR(y.sum().backward(), c10::Error, "modified by an inplace");
}

TEST(CastParametersTest, RecurrentLayersComputeAfterTheCast) {
  torch::manual_seed(1);
  nn::LSTM lstm(nn::LSTMOptions(3, 4));
  const auto x = torch::randn({5, 2, 3});
  const auto expected = std::get<0>(lstm->forward(x));
  cast_parameters(*lstm, Precision::bf16_true());
  const auto y = std::get<0>(lstm->forward(x.to(torch::kBFloat16)));
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(y.to(torch::kFloat).allclose(expected, 0, 0.02));
}

/// 16-bit input of an fp32 norm layer: forward and backward, with and without
/// an Autocast around it.
TEST(CastParametersTest, Fp32NormLayersTake16BitInputsOnTheCpu) {
  nn::BatchNorm1d bn(4);
  nn::LayerNorm ln(nn::LayerNormOptions({4}));
  nn::GroupNorm gn(2, 4);
  nn::Sequential nets[] = {
      nn::Sequential(bn), nn::Sequential(ln), nn::Sequential(gn)};
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    for (auto& net : nets) {
      for (const bool enabled : {false, true}) {
        torch::manual_seed(2);
        const auto x = torch::randn({8, 4}).to(dtype).requires_grad_();
        const auto expected = net->forward(x.detach().to(torch::kFloat));
        torch::Tensor y;
        {
          Autocast autocast(torch::kCPU, dtype, {.enabled = enabled});
          y = net->forward(x);
        }
        EXPECT_TRUE(y.to(torch::kFloat).allclose(expected, 0, 0.02));
        y.to(torch::kFloat).square().sum().backward();
        EXPECT_EQ(x.grad().scalar_type(), dtype);
      }
    }
  }
}

} // namespace
} // namespace ampkit
