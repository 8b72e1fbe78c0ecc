#include <ampkit/optim/decay.h>

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

namespace nn = torch::nn;
using ::testing::ElementsAre;

struct NetworkImpl : nn::Module {
  NetworkImpl() {
    table = register_module("table", nn::Embedding(8, 6));
    // Scale and bias of two dimensions.
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({2, 6})));
    head = register_module("head", nn::Linear(6, 8));
    head->register_parameter("tied", table->weight);
  }
  nn::Embedding table{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Network);

TEST(DecayTest, NormsAndBiasesAreNotDecayedUnlessAskedFor) {
  Network network;
  const auto parts = split_for_decay(*network);
  EXPECT_THAT(parts.decayed.names, ElementsAre("table.weight", "head.weight"));
  EXPECT_THAT(
      parts.kept.names, ElementsAre("norm.weight", "norm.bias", "head.bias"));
  const auto all = split_for_decay(*network, {.decay_norms_and_biases = true});
  EXPECT_EQ(all.decayed.params.size(), 5U);
  EXPECT_TRUE(all.kept.params.empty());
}

TEST(DecayTest, GroupsKeepAllOptionsButTheDecay) {
  Network network;
  AdamW adamw(
      decay_groups(*network, AdamWOptions{.lr = 0.5, .weight_decay = 0.1}));
  ASSERT_EQ(adamw.param_groups().size(), 2U);
  EXPECT_EQ(adamw.options(0).weight_decay, 0.1);
  EXPECT_EQ(adamw.options(1).weight_decay, 0);
  EXPECT_EQ(adamw.options(1).lr, 0.5);
  EXPECT_EQ(adamw.name_of(network->head->bias), "head.bias");
  EXPECT_EQ(adamw.state_dict().text("group.1.name"), "not decayed");
}

TEST(DecayTest, GroupsWithoutParametersAreLeftOut) {
  nn::Linear linear(nn::LinearOptions(3, 2).bias(false));
  EXPECT_EQ(decay_groups(*linear, SGDOptions{}).size(), 1U);
  nn::ReLU none;
  EXPECT_ERROR(
      SGD(decay_groups(*none, SGDOptions{})), c10::ValueError, "0 parameter");
}

} // namespace
} // namespace ampkit::optim
