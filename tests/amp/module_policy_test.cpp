#include <ampkit/amp/module_policy.h>

#include <ampkit/amp/autocast.h>
#include <torch/torch.h>

#include "amp/path_pattern.h"
#include "support/errors.h"

namespace ampkit {
namespace {

namespace nn = torch::nn;

struct FeedForward : nn::Module {
  FeedForward() {
    up = register_module("up", nn::Linear(8, 16));
    down = register_module("down", nn::Linear(16, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    hidden = up->forward(x);
    return out = down->forward(torch::gelu(hidden));
  }
  nn::Linear up{nullptr};
  nn::Linear down{nullptr};
  at::Tensor hidden;
  at::Tensor out;
};

struct Layer : nn::Module {
  Layer() {
    qkv = register_module("qkv", nn::Linear(8, 24));
    ffn = register_module("ffn", std::make_shared<FeedForward>());
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv->forward(x).chunk(3, -1);
    scores = torch::matmul(parts[0], parts[1].transpose(-1, -2));
    return ffn->forward(torch::matmul(scores, parts[2]));
  }
  nn::Linear qkv{nullptr};
  std::shared_ptr<FeedForward> ffn;
  at::Tensor scores;
};

struct Network : nn::Module {
  Network() {
    for (int i = 0; i < 2; ++i) {
      layers->push_back(std::make_shared<Layer>());
    }
    register_module("layers", layers);
    scale = register_parameter("scale", torch::ones({8}));
    head = register_module("head", nn::Linear(8, 4));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers) {
      x = layer->as<Layer>()->forward(x);
    }
    scaled = x * scale;
    return head->forward(scaled);
  }
  Layer& layer(size_t i) { return *layers[i]->as<Layer>(); }
  nn::ModuleList layers;
  at::Tensor scale;
  at::Tensor scaled;
  nn::Linear head{nullptr};
};

class ModulePolicyTest : public testing::Test {
 protected:
  at::Tensor run(const ModulePolicy& policy, at::ScalarType dtype) {
    const auto modules = policy.bind(*network);
    Autocast autocast(torch::kCPU, dtype, {.modules = modules});
    return network->forward(torch::randn({2, 3, 8}));
  }
  std::shared_ptr<Network> network = std::make_shared<Network>();
};

TEST(PathPatternTest, StarsStandForNamesAndPatternsReachDown) {
  EXPECT_TRUE(matches_path("encoder.*.ffn", "encoder.3.ffn"));
  EXPECT_TRUE(matches_path("encoder.*.ffn", "encoder.3.ffn.up"));
  EXPECT_FALSE(matches_path("encoder.*.ffn", "encoder.3.attn"));
  EXPECT_FALSE(matches_path("encoder.*.ffn", "encoder.3.x.ffn"));
  EXPECT_TRUE(matches_path("**.ffn", "encoder.3.x.ffn"));
  EXPECT_TRUE(matches_path("**.ffn", "ffn"));
  EXPECT_TRUE(matches_path("layer*", "layer12.conv"));
  EXPECT_FALSE(matches_path("layer1", "layer12"));
  EXPECT_TRUE(matches_path("*norm*", "prenorm2"));
  EXPECT_TRUE(matches_path("", "anything.below"));
  EXPECT_TRUE(matches_path("", ""));
  EXPECT_FALSE(matches_path("*", ""));
}

TEST_F(ModulePolicyTest, ModulesOfAPatternRunInFloat32AndTheRestDoesNot) {
  ModulePolicy policy;
  policy.set("layers.*.ffn", torch::kFloat);
  const auto y = run(policy, torch::kBFloat16);
  EXPECT_EQ(network->layer(1).scores.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(network->layer(1).ffn->hidden.scalar_type(), torch::kFloat);
  EXPECT_EQ(network->layer(1).ffn->out.scalar_type(), torch::kFloat);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
}

TEST_F(ModulePolicyTest, TheLastRuleThatMatchesDecides) {
  ModulePolicy policy;
  policy.set("layers", torch::kFloat).set("layers.0", torch::kHalf);
  run(policy, torch::kBFloat16);
  EXPECT_EQ(network->layer(0).ffn->hidden.scalar_type(), torch::kHalf);
  EXPECT_EQ(network->layer(1).ffn->hidden.scalar_type(), torch::kFloat);
}

TEST_F(ModulePolicyTest, ProductsWithoutParametersGoWithTheOpBefore) {
  ModulePolicy policy;
  policy.set("layers.1.qkv", torch::kFloat);
  run(policy, torch::kBFloat16);
  EXPECT_EQ(network->layer(0).scores.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(network->layer(1).scores.scalar_type(), torch::kFloat);
  EXPECT_EQ(network->layer(1).ffn->hidden.scalar_type(), torch::kBFloat16);
}

TEST_F(ModulePolicyTest, ParameterOutsideAnyLayerIsFoundInElementwiseOps) {
  ModulePolicy policy;
  policy.set("", torch::kFloat).set("layers", torch::kBFloat16);
  const auto y = run(policy, torch::kBFloat16);
  EXPECT_EQ(network->scaled.scalar_type(), torch::kFloat);
  EXPECT_EQ(network->layer(1).ffn->out.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(y.scalar_type(), torch::kFloat);
}

TEST_F(ModulePolicyTest, GradientsReachEveryParameter) {
  ModulePolicy policy;
  policy.set("layers.0", torch::kFloat);
  run(policy, torch::kBFloat16).sum().backward();
  for (const auto& item : network->named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_EQ(item.value().grad().scalar_type(), torch::kFloat) << item.key();
  }
}

TEST_F(ModulePolicyTest, WholeNetworkInFloat32EqualsNoAutocast) {
  ModulePolicy policy;
  policy.set("", torch::kFloat);
  const auto x = torch::randn({2, 3, 8});
  const auto expected = network->forward(x);
  Autocast autocast(
      torch::kCPU, torch::kHalf, {.modules = policy.bind(*network)});
  EXPECT_TRUE(torch::equal(network->forward(x), expected));
}

TEST_F(ModulePolicyTest, TiedParameterBelongsToTheModuleThatHasItFirst) {
  network->layer(1).ffn->up->weight = network->layer(0).ffn->up->weight;
  ModulePolicy policy;
  policy.set("layers.0.ffn.up", torch::kFloat);
  run(policy, torch::kBFloat16);
  EXPECT_EQ(network->layer(0).ffn->hidden.scalar_type(), torch::kFloat);
}

TEST_F(ModulePolicyTest, PatternThatMatchesNothingIsAnErrorWithTheNearestPath) {
  ModulePolicy policy;
  policy.set("haed", torch::kFloat);
  EXPECT_ERROR(
      policy.bind(*network),
      c10::ValueError,
      "'haed' matches no module",
      "did you mean 'head'");
}

TEST_F(ModulePolicyTest, BadRulesAreRefusedAndChangeNothing) {
  ModulePolicy policy;
  EXPECT_ERROR(
      policy.set("head", torch::kInt), c10::ValueError, "Float, Half", "Int");
  EXPECT_ERROR(
      policy.set("a..b", torch::kFloat), c10::ValueError, "name is empty");
  EXPECT_TRUE(policy.rules().empty());
}

TEST_F(ModulePolicyTest, TreeShowsDtypePatternAndSize) {
  ModulePolicy policy;
  policy.set("layers.*.ffn", torch::kFloat);
  const auto text = to_string(policy.bind(*network));
  EXPECT_THAT(
      text,
      testing::HasSubstr(
          "layers.0.ffn.up  Float  144 parameters  by 'layers.*.ffn'"));
  EXPECT_THAT(text, testing::HasSubstr("head  as the region  36 parameters"));
}

} // namespace
} // namespace ampkit
