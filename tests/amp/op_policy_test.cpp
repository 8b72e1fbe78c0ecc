#include <ampkit/amp/op_policy.h>

#include <functional>
#include <thread>

#include <ATen/autocast_mode.h>
#include <ampkit/amp/autocast.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "support/errors.h"

TORCH_LIBRARY(ampkit_op_policy_test, library) {
  library.def("scan(Tensor x) -> Tensor");
  library.def("product(Tensor x, Tensor[] others) -> Tensor");
}

namespace ampkit {
namespace {

using at::ScalarType;

// In the kernel, the dtype that the op got.
at::Tensor scan(const at::Tensor& x) {
  return x.cumsum(0);
}
at::Tensor product(const at::Tensor& x, at::TensorList others) {
  at::Tensor result = x;
  for (const at::Tensor& other : others) {
    result = result * other;
  }
  return result;
}

TORCH_LIBRARY_IMPL(ampkit_op_policy_test, CPU, library) {
  library.impl("scan", scan);
  library.impl("product", product);
}

at::Tensor call_scan(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("ampkit_op_policy_test::scan", "")
          .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

AutocastOptions strict() {
  return {.ops = OpPolicy::strict()};
}

TEST(OpPolicyTest, PytorchHasExactlyTheStockRules) {
  const auto ops = OpPolicy::pytorch();
  EXPECT_EQ(ops.rule("mm", at::kCPU), OpRule::lower_precision);
  EXPECT_EQ(ops.rule("mm", at::kCUDA), OpRule::lower_precision);
  EXPECT_EQ(ops.rule("softmax.int", at::kCPU), OpRule::inputs);
  EXPECT_EQ(ops.rule("softmax.int", at::kCUDA), OpRule::float32);
  EXPECT_EQ(ops.rule("mse_loss", at::kCPU), OpRule::float32);
  EXPECT_EQ(ops.rule("cat", at::kCPU), OpRule::promote);
  EXPECT_EQ(ops.rule("binary_cross_entropy", at::kCUDA), OpRule::refuse);
  EXPECT_EQ(ops.rule("relu", at::kCPU), OpRule::inputs);
}

TEST(OpPolicyTest, EveryListedOpHasAReason) {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const auto entries = OpPolicy::strict().entries(device);
    EXPECT_GT(entries.size(), 100U);
    for (const auto& entry : entries) {
      EXPECT_FALSE(entry.reason.empty()) << entry.op;
    }
  }
}

TEST(OpPolicyTest, StrictIsTheSameOnCpuAndCudaForWhatMustBeFloat32) {
  const auto strict = OpPolicy::strict();
  for (const char* op :
       {"softmax.int",
        "log_softmax.int",
        "cross_entropy_loss",
        "nll_loss",
        "ctc_loss.Tensor",
        "layer_norm",
        "batch_norm",
        "group_norm",
        "rms_norm",
        "exp",
        "log",
        "pow.Tensor_Scalar",
        "sum",
        "mean",
        "cumsum",
        "var.correction",
        "binary_cross_entropy"}) {
    EXPECT_EQ(strict.rule(op, at::kCPU), OpRule::float32) << op;
    EXPECT_EQ(strict.rule(op, at::kCUDA), OpRule::float32) << op;
  }
  EXPECT_EQ(strict.rule("mm", at::kCPU), OpRule::lower_precision);
  EXPECT_EQ(strict.rule("conv2d", at::kCUDA), OpRule::lower_precision);
}

TEST(OpPolicyTest, NormsAndSoftmaxOf16BitActivationsRunInFloat32UnderStrict) {
  const auto x = torch::randn({4, 8}).to(torch::kBFloat16);
  const auto scale = torch::ones({8}).to(torch::kBFloat16);
  const auto shift = torch::zeros({8}).to(torch::kBFloat16);
  {
    Autocast stock(torch::kCPU, torch::kBFloat16);
    EXPECT_EQ(torch::softmax(x, -1).scalar_type(), torch::kBFloat16);
    EXPECT_EQ(x.exp().scalar_type(), torch::kBFloat16);
  }
  Autocast autocast(torch::kCPU, torch::kBFloat16, strict());
  EXPECT_EQ(torch::softmax(x, -1).scalar_type(), torch::kFloat);
  EXPECT_EQ(torch::log_softmax(x, -1).scalar_type(), torch::kFloat);
  EXPECT_EQ(
      torch::layer_norm(x, {8}, scale, shift).scalar_type(), torch::kFloat);
  EXPECT_EQ(
      torch::batch_norm(x, scale, shift, {}, {}, true, 0.1, 1e-5, false)
          .scalar_type(),
      torch::kFloat);
  EXPECT_EQ(x.exp().scalar_type(), torch::kFloat);
  EXPECT_EQ(x.sum().scalar_type(), torch::kFloat);
  EXPECT_EQ(x.mean(0).scalar_type(), torch::kFloat);
  EXPECT_TRUE(
      torch::equal(torch::softmax(x, -1), x.to(at::kFloat).softmax(-1)));
}

TEST(OpPolicyTest, ADtypeThatTheCallerGaveIsKept) {
  const auto x = torch::randn({4, 8}).to(torch::kBFloat16);
  Autocast autocast(torch::kCPU, torch::kBFloat16, strict());
  EXPECT_EQ(
      torch::softmax(x, -1, torch::kBFloat16).scalar_type(), torch::kBFloat16);
}

TEST(OpPolicyTest, Float64AndIntegersAreNeverTouched) {
  Autocast autocast(torch::kCPU, torch::kHalf, strict());
  EXPECT_EQ(
      torch::ones({3}, torch::kDouble).exp().scalar_type(), torch::kDouble);
  EXPECT_EQ(torch::ones({3}, torch::kLong).sum().scalar_type(), torch::kLong);
}

TEST(OpPolicyTest, GradientsFlowThroughTheCastsOfAPolicy) {
  auto x = torch::randn({4, 8}).to(torch::kHalf).requires_grad_();
  Autocast autocast(torch::kCPU, torch::kHalf, strict());
  torch::log_softmax(x, -1).sum().backward();
  ASSERT_TRUE(x.grad().defined());
  EXPECT_EQ(x.grad().scalar_type(), torch::kHalf);
}

TEST(OpPolicyTest, AnEditedOpFollowsItsNewRuleAndOthersDoNot) {
  auto ops = OpPolicy::pytorch();
  ops.set("gelu", OpRule::float32, "saturates").set("mm", OpRule::inputs);
  const auto x = torch::randn({4, 4});
  const auto low = x.to(torch::kBFloat16);
  Autocast autocast(torch::kCPU, torch::kBFloat16, {.ops = ops});
  EXPECT_EQ(torch::gelu(low).scalar_type(), torch::kFloat);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kFloat);
  EXPECT_EQ(torch::mm(low, low).scalar_type(), torch::kBFloat16);
  EXPECT_EQ(
      torch::bmm(x.unsqueeze(0), x.unsqueeze(0)).scalar_type(),
      torch::kBFloat16);
  EXPECT_EQ(torch::relu(low).scalar_type(), torch::kBFloat16);
  EXPECT_EQ(ops.entry("gelu", at::kCPU).reason, "saturates");
}

TEST(OpPolicyTest, LowerPrecisionAndPromoteCanBeGivenToAnyOp) {
  auto ops = OpPolicy::pytorch();
  ops.set("gelu", OpRule::lower_precision).set("mul.Tensor", OpRule::promote);
  const auto x = torch::randn({4, 4});
  Autocast autocast(torch::kCPU, torch::kHalf, {.ops = ops});
  EXPECT_EQ(torch::gelu(x).scalar_type(), torch::kHalf);
  EXPECT_EQ(torch::mul(x, x.to(torch::kHalf)).scalar_type(), torch::kFloat);
  EXPECT_EQ(
      torch::mul(x.to(torch::kBFloat16), x.to(torch::kBFloat16)).scalar_type(),
      torch::kHalf);
}

// A 16-bit product written into FP32: an error without a rule, as in PyTorch.
TEST(OpPolicyTest, IndexOpsTakeA16BitSourceIfTheirRuleIsPromote) {
  const auto x = torch::zeros({3, 4});
  const auto index = torch::tensor({0, 2}, torch::kLong);
  const auto rows = torch::zeros({2, 4}, torch::kLong);
  const std::vector<std::pair<
      std::string,
      std::function<at::Tensor(const at::Tensor& source)>>>
      calls{
          {"index_put",
           [&](auto& source) { return at::index_put(x, {index}, source); }},
          {"index_add",
           [&](auto& source) { return at::index_add(x, 0, index, source); }},
          {"scatter",
           [&](auto& source) { return at::scatter(x, 0, rows, source); }},
          {"scatter_add",
           [&](auto& source) { return at::scatter_add(x, 0, rows, source); }},
          {"index_copy",
           [&](auto& source) { return at::index_copy(x, 0, index, source); }}};
  for (const auto& [op, call] : calls) {
    Autocast stock(torch::kCPU, torch::kBFloat16);
    const auto source = torch::mm(torch::ones({2, 4}), torch::ones({4, 4}));
    ASSERT_EQ(source.scalar_type(), torch::kBFloat16);
    if (op != "index_copy") { // which PyTorch's CPU list promotes
      EXPECT_ANY_THROW(call(source)) << op;
    }
    auto ops = OpPolicy::pytorch();
    ops.set(op, OpRule::promote);
    Autocast autocast(torch::kCPU, torch::kBFloat16, {.ops = ops});
    const auto result = call(source);
    EXPECT_EQ(result.scalar_type(), torch::kFloat) << op;
    EXPECT_TRUE(result.equal(call(source.to(torch::kFloat)))) << op;
  }
}

TEST(OpPolicyTest, RefusedOpSaysWhatToDo) {
  auto ops = OpPolicy::pytorch();
  ops.set("binary_cross_entropy", OpRule::refuse);
  const auto p = torch::full({3}, 0.5);
  Autocast autocast(torch::kCPU, torch::kHalf, {.ops = ops});
  EXPECT_ERROR(
      torch::binary_cross_entropy(p, p),
      c10::Error,
      "binary_cross_entropy is not safe",
      "binary_cross_entropy_with_logits");
}

TEST(OpPolicyTest, PolicyEndsWithItsRegionAndNestedRegionsInheritIt) {
  const auto x = torch::randn({4, 4}).to(torch::kBFloat16);
  {
    Autocast outer(torch::kCPU, torch::kBFloat16, strict());
    {
      Autocast inner(torch::kCPU, torch::kHalf);
      EXPECT_EQ(x.exp().scalar_type(), torch::kFloat);
      Autocast stock(torch::kCPU, torch::kHalf, {.ops = OpPolicy::pytorch()});
      EXPECT_EQ(x.exp().scalar_type(), torch::kBFloat16);
    }
    EXPECT_EQ(x.exp().scalar_type(), torch::kFloat);
    Autocast off(torch::kCPU, torch::kBFloat16, {.enabled = false});
    EXPECT_EQ(x.exp().scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(x.exp().scalar_type(), torch::kBFloat16);
}

TEST(OpPolicyTest, StateCarriesThePolicyIntoAnotherThread) {
  Autocast autocast(torch::kCPU, torch::kBFloat16, strict());
  const auto state = AutocastState::current();
  ScalarType with = ScalarType::Undefined;
  ScalarType without = ScalarType::Undefined;
  std::thread([&] {
    const auto x = torch::ones({4}, torch::kBFloat16);
    without = x.exp().scalar_type();
    Autocast carried(state);
    with = x.exp().scalar_type();
  }).join();
  EXPECT_EQ(with, torch::kFloat);
  EXPECT_EQ(without, torch::kBFloat16);
}

TEST(OpPolicyTest, NothingChangesForCodeWithoutAnAmpkitGuard) {
  const auto x = torch::randn({4, 4}).to(torch::kBFloat16);
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16, strict());
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  EXPECT_EQ(torch::softmax(x, -1).scalar_type(), torch::kBFloat16);
  EXPECT_EQ(x.exp().scalar_type(), torch::kBFloat16);
  EXPECT_EQ(torch::mse_loss(x, x).scalar_type(), torch::kFloat);
  EXPECT_EQ(torch::cat({x, x.to(at::kFloat)}).scalar_type(), torch::kFloat);
  EXPECT_EQ(torch::mm(x, x.to(at::kFloat)).scalar_type(), torch::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
}

TEST(OpPolicyTest, UnknownOpIsAnErrorWithTheNearestName) {
  auto ops = OpPolicy::strict();
  EXPECT_ERROR(
      ops.set("sofmax", OpRule::float32),
      c10::ValueError,
      "no op 'sofmax'",
      "did you mean 'softmax'");
  EXPECT_ERROR(
      ops.set("softmax.itn", OpRule::float32), c10::ValueError, "softmax.int");
  EXPECT_ERROR(ops.set("exp_", OpRule::float32), c10::ValueError, "in-place");
  EXPECT_ERROR(
      ops.rule("mm", at::kMeta), c10::ValueError, "cpu or cuda", "meta");
  EXPECT_ERROR(OpPolicy::parse("lax"), c10::ValueError, "pytorch, strict");
  EXPECT_EQ(ops, OpPolicy::strict());
}

TEST(OpPolicyTest, RulesParseAndPrint) {
  for (const auto rule :
       {OpRule::inputs,
        OpRule::lower_precision,
        OpRule::float32,
        OpRule::promote,
        OpRule::refuse}) {
    EXPECT_EQ(parse_op_rule(to_string(rule)), rule);
  }
  EXPECT_ERROR(parse_op_rule("fp32"), c10::ValueError, "lower-precision");
}

TEST(OpPolicyTest, AnnotatedCustomOpGetsTheDtypeItAsksFor) {
  const auto x = torch::ones({4}, torch::kBFloat16);
  {
    Autocast before(torch::kCPU, torch::kBFloat16);
    EXPECT_EQ(call_scan(x).scalar_type(), torch::kBFloat16);
  }
  annotate_op("ampkit_op_policy_test::scan", OpRule::float32);
  EXPECT_EQ(call_scan(x).scalar_type(), torch::kBFloat16); // no region
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(call_scan(x).scalar_type(), torch::kFloat);
  auto ops = OpPolicy::pytorch();
  ops.set("ampkit_op_policy_test::scan", OpRule::lower_precision);
  Autocast overridden(torch::kCPU, torch::kHalf, {.ops = ops});
  EXPECT_EQ(call_scan(x.to(at::kFloat)).scalar_type(), torch::kHalf);
}

TEST(OpPolicyTest, AnnotatingAnOpThatHasItsOwnKernelIsRefused) {
  EXPECT_ERROR(
      annotate_op("mm", OpRule::float32), c10::Error, "kernel of its own");
  EXPECT_ERROR(
      annotate_op("nolib::op", OpRule::float32), c10::ValueError, "nolib::op");
}

TEST(OpPolicyTest, TensorListsOfACustomOpAreCastToo) {
  annotate_op("ampkit_op_policy_test::product", OpRule::lower_precision);
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("ampkit_op_policy_test::product", "")
                      .typed<at::Tensor(const at::Tensor&, at::TensorList)>();
  const auto x = torch::ones({4});
  const std::vector<at::Tensor> others{x, x};
  Autocast autocast(torch::kCPU, torch::kHalf);
  EXPECT_EQ(op.call(x, others).scalar_type(), torch::kHalf);
}

} // namespace
} // namespace ampkit
