// Where a NaN was born, in the modules of C++, which have no hooks.

#include <ampkit/diagnose/watch.h>

#include <torch/torch.h>

namespace ampkit::diagnose {
namespace {

namespace nn = torch::nn;

/// The finding of a step of `net`.
std::optional<Finding> finding_in(nn::Sequential& net) {
  torch::manual_seed(0);
  Watch watch(*net);
  auto step = watch.step();
  net->forward(torch::ones({2, 4})).sum().backward();
  return step.finish();
}

// The second of three layers has weights whose products cancel as inf - inf.
TEST(WatchSymptoms, LayerOfASequentialThatMadeANanIsNamedWithoutHooks) {
  nn::Sequential net(nn::Linear(4, 4), nn::Linear(4, 4), nn::Linear(4, 1));
  EXPECT_FALSE(finding_in(net).has_value());
  {
    const torch::NoGradGuard no_grad;
    net[0]->as<nn::Linear>()->weight.fill_(10);
    net[1]->as<nn::Linear>()->weight.fill_(3e38F);
    net[1]->as<nn::Linear>()->weight.slice(1, 0, 2).fill_(-3e38F);
  }
  const auto finding = finding_in(net);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->module, "1") << to_string(*finding);
  EXPECT_EQ(finding->parameter, "1.weight");
  EXPECT_EQ(finding->op, "aten::addmm");
  EXPECT_EQ(finding->direction, Direction::forward);
  const auto text = to_string(*finding);
  EXPECT_THAT(text, testing::HasSubstr("module    1"));
  EXPECT_THAT(text, testing::HasSubstr("tensor    1.weight"));
}

TEST(WatchSymptoms, LayerWithoutParametersIsPlacedBetweenItsNeighbours) {
  nn::Sequential net(
      nn::Linear(4, 4),
      nn::Functional([](const at::Tensor& x) { return (x * 0).log(); }),
      nn::Linear(4, 1));
  const auto finding = finding_in(net);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::logarithm) << to_string(*finding);
  EXPECT_EQ(finding->after, "0");
  EXPECT_EQ(finding->before, "2");
}

TEST(WatchSymptoms, LayerThatMadeANanInBackwardIsNamedWithoutHooks) {
  nn::Sequential net(
      nn::Linear(4, 4),
      nn::Functional([](const at::Tensor& x) { return (x * 0).sqrt(); }),
      nn::Linear(4, 1));
  const auto finding = finding_in(net);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->direction, Direction::backward) << to_string(*finding);
  EXPECT_EQ(finding->forward_op, "aten::sqrt");
  EXPECT_EQ(finding->after, "0");
  EXPECT_EQ(finding->before, "2");
}

} // namespace
} // namespace ampkit::diagnose
