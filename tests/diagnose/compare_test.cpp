// Activations against Python's: tests/oracle/test_activations.py.
#include <ampkit/diagnose/compare.h>

#include <cmath>

#include <torch/torch.h>

#include "small_nets.h"
#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

at::Tensor loss_of_tokens(SmallTransformer& net, const at::Tensor& tokens) {
  return torch::cross_entropy_loss(
      net.forward(tokens).flatten(0, 1), tokens.flatten());
}

at::Tensor tokens() {
  return torch::randint(0, 32, {4, 8}, at::kLong);
}

class CompareTest : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(0); }
};

TEST(DeviationTest, NumbersAreThoseOfTheDefinition) {
  const auto reference = torch::tensor({1.0, -2.0, 4.0, 0.0, 1e-9});
  const auto value = torch::tensor({1.0, -2.0, 5.0, 0.0, 0.0}).to(at::kHalf);
  const auto found = deviation(value, reference);
  EXPECT_TRUE(found.finite);
  EXPECT_NEAR(found.relative, 1 / std::sqrt(21), 1e-9);
  EXPECT_NEAR(found.cosine, 25 / std::sqrt(21.0 * 30.0), 1e-9);
  // A half has 10 bits behind the first: 4 and 5 are 256 steps apart, 1e-9 is
  // 0.0168 steps of 2^-24 from 0.
  EXPECT_NEAR(found.ulp, (256 + 1e-9 * std::pow(2, 24)) / 5, 1e-6);
  EXPECT_DOUBLE_EQ(found.flushed, 0.25);
}

TEST(DeviationTest, ZerosInfinitiesAndEmptyTensorsHaveAnAnswer) {
  const auto zeros = torch::zeros({3});
  EXPECT_EQ(deviation(zeros, zeros).relative, 0);
  EXPECT_EQ(deviation(zeros, zeros).cosine, 1);
  EXPECT_EQ(deviation(torch::ones({3}), zeros).relative, 1);
  EXPECT_EQ(deviation(torch::zeros({0}), torch::zeros({0})).ulp, 0);
  const auto bad = torch::tensor({1.0, static_cast<double>(INFINITY), 0.0});
  EXPECT_FALSE(deviation(bad, zeros).finite);
  EXPECT_TRUE(deviation(bad, bad).finite);
  EXPECT_EQ(deviation(bad, bad).relative, 0);
  EXPECT_FALSE(deviation(bad, -bad).finite);
  EXPECT_TRUE(std::isnan(deviation(zeros, bad).relative));
  EXPECT_ERROR(
      deviation(zeros, torch::zeros({4})), c10::ValueError, "[3] and [4]");
  EXPECT_ERROR(
      deviation(zeros, torch::zeros({3}, at::kLong)), c10::ValueError, "Long");
}

TEST_F(CompareTest, AHealthyNetDepartsNowhereAndEachOpHasItsModule) {
  SmallTransformer net;
  const auto batch = tokens();
  const auto found = compare_precisions(
      net, single_pass(net, [&] { return loss_of_tokens(net, batch); }));
  ASSERT_EQ(found.losses.size(), 1);
  EXPECT_NEAR(found.losses.front(), found.reference_losses.front(), 0.05);
  EXPECT_EQ(found.first_departure(), nullptr);
  int gradients = 0;
  bool saw_16_bits = false;
  for (const auto& op : found.ops) {
    EXPECT_TRUE(op.output.finite) << op.op;
    EXPECT_LT(op.output_noise, 1e-4) << op.op;
    gradients += op.gradient.has_value() ? 1 : 0;
    saw_16_bits = saw_16_bits || op.dtype == at::kBFloat16;
  }
  EXPECT_TRUE(saw_16_bits);
  EXPECT_GT(gradients, 20);
  const auto names = found.layers();
  EXPECT_EQ(names.size(), 14); // embed, two blocks of six, head
  EXPECT_GT(names.front().added, 1e-4);
  EXPECT_LT(names.front().added, 1e-2);
  EXPECT_THAT(to_string(found), testing::HasSubstr("departs nowhere"));
}

TEST_F(CompareTest, TheFirstOpThatLosesWhatTheOthersKeepIsNamed) {
  SmallTransformer net;
  net.hidden = [](const at::Tensor& x) {
    // bf16 steps by 8 there.
    return torch::linear(x, torch::eye(16)).add(1536.0).sub(1536.0);
  };
  const auto batch = tokens();
  const auto found = compare_precisions(
      net, single_pass(net, [&] { return loss_of_tokens(net, batch); }));
  const auto* op = found.first_departure();
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->op, "aten::sub");
  EXPECT_EQ(op->module, "blocks.1.down"); // the last before it
  EXPECT_GT(op->output.relative, 0.5);
  // The addition rounded; the difference is exact.
  EXPECT_EQ(op->added, 0);
  EXPECT_THAT(to_string(found), testing::HasSubstr("aten::sub"));
}

TEST_F(CompareTest, ALayerThatOverflowsDepartsAndAddsMost) {
  SmallConvNet net;
  {
    const torch::NoGradGuard no_grad;
    net.conv2->weight.mul_(1e6);
  }
  const auto x = torch::randn({4, 1, 8, 8});
  const auto found = compare_precisions(
      net,
      single_pass(net, [&] { return net.forward(x).square().mean(); }),
      {.precision = Precision::fp16_mixed()});
  const auto* op = found.first_departure();
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->module, "conv2");
  EXPECT_FALSE(op->output.finite);
  EXPECT_FALSE(std::isfinite(found.losses.front()));
}

TEST_F(CompareTest, GradientsThatUnderflowAreSeenThoughTheForwardPassIsFine) {
  SmallConvNet net;
  const auto x = torch::randn({4, 1, 8, 8});
  const auto run = single_pass(net, [&] {
    return net.forward(x).to(at::kFloat).square().mean() * 1e-7;
  });
  const auto found =
      compare_precisions(net, run, {.precision = Precision::fp16_mixed()});
  const auto* op = found.first_departure();
  ASSERT_NE(op, nullptr);
  EXPECT_LT(op->output.relative, 0.05);
  ASSERT_TRUE(op->gradient.has_value());
  EXPECT_GT(op->gradient->flushed, 0.5);
}

TEST_F(CompareTest, APolicyThatCuresIsSeenToCure) {
  SmallConvNet net;
  {
    const torch::NoGradGuard no_grad;
    net.conv2->weight.mul_(1e6);
    net.fc->weight.mul_(1e-6);
  }
  const auto x = torch::randn({4, 1, 8, 8});
  const auto run =
      single_pass(net, [&] { return net.forward(x).square().mean(); });
  CompareOptions options{.precision = Precision::fp16_mixed()};
  EXPECT_NE(compare_precisions(net, run, options).first_departure(), nullptr);
  options.policy.modules.set("conv2", at::kFloat).set("fc", at::kFloat);
  EXPECT_EQ(compare_precisions(net, run, options).first_departure(), nullptr);
}

TEST_F(CompareTest, RunsThatDifferInTheirOpsAreRefused) {
  SmallConvNet net;
  const auto x = torch::randn({4, 1, 8, 8});
  const auto run = single_pass(net, [&] {
    auto y = net.forward(x);
    y = y.scalar_type() == at::kFloat ? y.sin() : y.cos();
    return y.sum();
  });
  EXPECT_ERROR(
      compare_precisions(net, run),
      c10::Error,
      "bf16-mixed is aten::cos of [4, 4]",
      "aten::sin of [4, 4]");
  // The thread is free again.
  EXPECT_NO_THROW(compare_precisions(
      net, single_pass(net, [&] { return net.forward(x).sum(); })));
}

TEST_F(CompareTest, ActivationsHaveTheNamesOfTheirModules) {
  SmallConvNet net;
  const auto x = torch::randn({4, 1, 8, 8});
  const auto run =
      single_pass(net, [&] { return (net.forward(x) + net.forward(x)).sum(); });
  const auto found =
      record_activations(net, run, {.precision = Precision::fp32()});
  std::vector<std::string> names;
  for (const auto& [name, value] : found.entries()) {
    names.push_back(name);
  }
  EXPECT_THAT(
      names,
      testing::ElementsAre(
          "conv1",
          "bn1",
          "conv2",
          "fc",
          "conv1#2",
          "bn1#2",
          "conv2#2",
          "fc#2"));
  EXPECT_TRUE(torch::allclose(
      found.tensor("conv1"), net.conv1->forward(x), 1e-5, 1e-6));
  const auto same = compare_activations(found, found);
  EXPECT_EQ(same.entries.size(), 8);
  EXPECT_TRUE(same.left_out.empty());
  EXPECT_EQ(same.first_departure(1e-9), nullptr);
}

TEST_F(CompareTest, ActivationsThatOnlyOneSideHasAreListed) {
  io::StateDict a;
  a.set("first", torch::ones({2}));
  a.set("middle", torch::full({2}, 1.1));
  a.set("extra", torch::ones({2}));
  io::StateDict b;
  b.set("first", torch::ones({3}));
  b.set("middle", torch::ones({2}));
  b.set("last", torch::ones({2}));
  const auto found = compare_activations(a, b);
  EXPECT_THAT(
      found.left_out,
      testing::ElementsAre(
          "another shape: first is [2], in the reference [3]",
          "only in the reference: last",
          "not in the reference: extra"));
  ASSERT_NE(found.first_departure(), nullptr);
  EXPECT_EQ(found.first_departure()->name, "middle");
  EXPECT_EQ(found.first_departure(0.2), nullptr);
  EXPECT_ERROR(
      compare_activations(a, io::StateDict()),
      c10::Error,
      "nothing to compare",
      "not in the reference: extra");
}

} // namespace
} // namespace ampkit::diagnose
