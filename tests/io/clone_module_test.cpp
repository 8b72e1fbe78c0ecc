#include <ampkit/io/clone_module.h>

#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::io {
namespace {

/// An embedding whose table is the output's weight too, as in a language model:
/// Module::clone() clones the embedding alone, and cuts the tie.
struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
  TiedImpl() { TiedImpl::reset(); }
  void reset() override {
    table = register_module("table", torch::nn::Embedding(5, 3));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    output = register_parameter("output", table->weight);
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return drop->forward(table->forward(tokens)).matmul(output.t());
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::Tensor output;
};
TORCH_MODULE(Tied);

TEST(CloneModuleTest, CloneKeepsTies) {
  const Tied module;
  const auto copy =
      clone_module(*module, [] { return std::make_shared<TiedImpl>(); });
  EXPECT_TRUE(copy->output.is_same(copy->table->weight));
  EXPECT_TRUE(copy->output.equal(module->output));
  EXPECT_NE(copy->output.data_ptr(), module->output.data_ptr());
  // Both uses give one gradient, and the first module sees nothing of it.
  copy->eval();
  copy->forward(torch::tensor({0, 1})).sum().backward();
  EXPECT_TRUE(copy->table->weight.grad().defined());
  EXPECT_FALSE(module->output.grad().defined());
}

TEST(CloneModuleTest, CloneDoesNotCutATieInSilence) {
  const Tied module;
  EXPECT_ERROR(
      clone_module(*module),
      c10::Error,
      "table.weight is tied to output only in the source",
      "Give a function");
}

TEST(CloneModuleTest, CloneKeepsFrozenParametersFrozen) {
  torch::nn::Sequential module(
      torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
  module->parameters()[0].set_requires_grad(false);
  module[1]->eval();
  module->to(torch::kDouble);
  const auto copy = clone_module(*module);
  const auto before = module->named_parameters();
  for (const auto& item : copy->named_parameters()) {
    EXPECT_EQ(item.value().requires_grad(), before[item.key()].requires_grad())
        << item.key();
    EXPECT_TRUE(item.value().equal(before[item.key()])) << item.key();
  }
  EXPECT_TRUE(copy->is_training());
  EXPECT_TRUE((*copy)[0]->is_training());
  EXPECT_FALSE((*copy)[1]->is_training());
}

TEST(CloneModuleTest, MirrorTakesOverTheDtype) {
  torch::nn::Linear source(3, 2);
  source->to(torch::kHalf);
  torch::nn::Linear target(3, 2);
  mirror_module(*source, *target);
  EXPECT_EQ(target->weight.scalar_type(), torch::kHalf);
  EXPECT_TRUE(target->weight.equal(source->weight));
}

TEST(CloneModuleTest, ModulesThatDifferAreListedAndNothingIsCopied) {
  const torch::nn::Linear source(3, 2);
  torch::nn::Linear target(torch::nn::LinearOptions(4, 2).bias(false));
  const auto before = target->weight.clone();
  EXPECT_ERROR(
      mirror_module(*source, *target),
      c10::Error,
      "the target has no bias",
      "weight has sizes [2, 3] and [2, 4]");
  EXPECT_TRUE(target->weight.equal(before));
}

} // namespace
} // namespace ampkit::io
