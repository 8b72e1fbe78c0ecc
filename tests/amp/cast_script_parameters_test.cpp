#include <ampkit/amp/cast_parameters.h>

#include <map>
#include <sstream>

#include <ampkit/amp/autocast.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

using Dtypes = std::map<std::string, torch::Dtype>;
using torch::jit::Module;

Module make_linear(const torch::Tensor& weight) {
  Module linear("__torch__.torch.nn.modules.linear.Linear");
  linear.register_parameter("weight", weight, false);
  linear.define(
      "def forward(self, x):\n  return torch.matmul(x, self.weight.t())\n");
  return linear;
}

/// What scripting nn.Sequential(Linear, BatchNorm1d, Linear) gives, both Linear
/// with one weight, and a buffer of each kind.
Module make_network() {
  torch::manual_seed(3);
  Module norm(
      "__torch__.torch.nn.modules.batchnorm.___torch_mangle_7.BatchNorm1d");
  norm.register_parameter("weight", torch::ones({4}).requires_grad_(), false);
  norm.register_parameter("bias", torch::zeros({4}).requires_grad_(), false);
  norm.register_buffer("running_mean", torch::zeros({4}));
  norm.register_buffer("running_var", torch::ones({4}));
  norm.register_buffer(
      "num_batches_tracked", torch::full({}, 2048, torch::kLong));
  norm.define(R"(
def forward(self, x):
  self.num_batches_tracked.add_(1)
  return torch.batch_norm(x, self.weight, self.bias, self.running_mean,
                          self.running_var, True, 0.1, 1e-5, False)
)");
  const auto weight = (torch::randn({4, 4})).requires_grad_();
  Module net("__torch__.Network");
  net.register_module("first", make_linear(weight));
  net.register_module("norm", norm);
  net.register_module("last", make_linear(weight));
  net.register_buffer("mean", torch::ones({4}));
  net.register_attribute("table", c10::TensorType::get(), torch::ones({4}));
  net.define(
      "def forward(self, x):\n"
      "  return self.last.forward(self.norm.forward(self.first.forward(x)))\n");
  return net;
}

Module saved_and_loaded(const Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

Dtypes dtypes_of(const Module& module) {
  Dtypes dtypes;
  for (const auto& attribute : module.named_attributes()) {
    if (attribute.value.isTensor()) {
      dtypes[attribute.name] = attribute.value.toTensor().scalar_type();
    }
  }
  return dtypes;
}

class CastScriptParametersTest : public ::testing::TestWithParam<bool> {
 protected:
  Module net_ = GetParam() ? saved_and_loaded(make_network()) : make_network();
};

INSTANTIATE_TEST_SUITE_P(
    MadeOrLoaded, CastScriptParametersTest, ::testing::Bool());

TEST_P(CastScriptParametersTest, NormLayersCountersAndPlainAttributesStay) {
  Precision precision = Precision::bf16_master();
  precision.buffers = torch::kDouble;
  const auto changes = cast_parameters(net_, precision);
  const Dtypes expected{
      {"first.weight", torch::kBFloat16},
      {"last.weight", torch::kBFloat16},
      {"mean", torch::kDouble},
      {"norm.bias", torch::kFloat},
      {"norm.num_batches_tracked", torch::kLong},
      {"norm.running_mean", torch::kFloat},
      {"norm.running_var", torch::kFloat},
      {"norm.weight", torch::kFloat},
      {"table", torch::kFloat}};
  EXPECT_EQ(dtypes_of(net_), expected);
  ASSERT_EQ(changes.size(), 2U); // the tied weight once
  EXPECT_EQ(changes[0].name, "mean");
  EXPECT_EQ(changes[1].name, "first.weight");
}

TEST_P(CastScriptParametersTest, TiesAndHandlesFollow) {
  const auto first = net_.attr("first").toModule().attr("weight").toTensor();
  const auto last = net_.attr("last").toModule().attr("weight").toTensor();
  cast_parameters(net_, Precision::fp16_master());
  EXPECT_EQ(first.scalar_type(), torch::kHalf);
  EXPECT_EQ(first.const_data_ptr(), last.const_data_ptr());
  EXPECT_TRUE(first.requires_grad());
}

TEST_P(CastScriptParametersTest, TrainsIn16BitsAndCountsBeyond2048) {
  cast_parameters(net_, Precision::bf16_master());
  const auto counter =
      net_.attr("norm").toModule().attr("num_batches_tracked").toTensor();
  const auto x = torch::randn({8, 4}).to(torch::kBFloat16);
  for (int i = 0; i < 2; ++i) {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    net_.forward({x}).toTensor().to(torch::kFloat).square().sum().backward();
  }
  EXPECT_EQ(counter.item<int64_t>(), 2050);
  for (const auto& parameter : net_.named_parameters()) {
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    EXPECT_EQ(
        parameter.value.grad().scalar_type(), parameter.value.scalar_type());
  }
}

TEST_P(CastScriptParametersTest, PatternsAndErrorsAreThoseOfEagerModules) {
  EXPECT_ERROR(
      cast_parameters(net_, Precision::bf16_master(), {.keep_fp32 = {"lost"}}),
      c10::ValueError,
      "'lost'",
      "'first'");
  EXPECT_EQ(dtypes_of(net_).at("first.weight"), torch::kFloat);
  const auto changes =
      cast_parameters(net_, Precision::bf16_master(), {.keep_fp32 = {"first"}});
  EXPECT_TRUE(changes.empty()); // the tied weight is kept with it
}

} // namespace
} // namespace ampkit
