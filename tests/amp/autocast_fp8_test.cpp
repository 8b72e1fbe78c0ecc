#include <ampkit/amp/autocast.h>
#include <ampkit/amp/fp8.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

class AutocastFp8Test : public testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(1);
    linear = torch::nn::Linear(32, 16);
    fp8 = std::make_shared<Fp8Linears>(*linear);
    options.fp8 = fp8;
  }
  int64_t products() const { return fp8->layers().front().products; }

  torch::nn::Linear linear{nullptr};
  std::shared_ptr<Fp8Linears> fp8;
  AutocastOptions options;
};

TEST_F(AutocastFp8Test, LinearRunsInFp8For2dAnd3dInput) {
  const auto x = torch::randn({4, 16, 32});
  const auto expected = fp8->linear(x, linear->weight, linear->bias);
  const auto before = products();
  Autocast autocast(torch::kCPU, Precision::fp8_mixed(), options);
  const auto y = linear->forward(x);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  const auto flat = linear->forward(x.flatten(0, 1));
  const auto direct = at::linear(x, linear->weight, linear->bias);
  EXPECT_EQ(products() - before, 3);
  EXPECT_TRUE(torch::equal(direct, expected));
  EXPECT_TRUE(torch::equal(flat.view_as(expected), expected));
  // nn::Linear adds the bias of 3-D input by itself, in a second rounding.
  EXPECT_TRUE(
      torch::allclose(y.to(at::kFloat), expected.to(at::kFloat), 0.02, 0.02));
}

TEST_F(AutocastFp8Test, GradientsAreThoseOfTheFp8Product) {
  const auto x = torch::randn({8, 32}).requires_grad_();
  fp8->linear(x, linear->weight, linear->bias).sum().backward();
  const auto expected = linear->weight.grad().clone();
  linear->zero_grad();
  {
    Autocast autocast(torch::kCPU, Precision::fp8_mixed(), options);
    linear->forward(x).sum().backward();
  }
  EXPECT_TRUE(torch::equal(linear->weight.grad(), expected));
}

TEST_F(AutocastFp8Test, ModuleInFloat32AndProductsOfActivationsStayOut) {
  ModulePolicy policy;
  policy.set("", torch::kFloat);
  const auto x = torch::randn({16, 32});
  options.modules = policy.bind(*linear);
  Autocast autocast(torch::kCPU, Precision::fp8_mixed(), options);
  EXPECT_EQ(linear->forward(x).scalar_type(), torch::kFloat);
  Autocast inner(
      torch::kCPU,
      Precision::fp8_mixed(),
      {.modules = ModulePolicy().bind(*linear)});
  EXPECT_EQ(torch::mm(x, x.t()).scalar_type(), torch::kBFloat16);
  EXPECT_EQ(products(), 0);
  linear->forward(x); // the state is that of the region around
  EXPECT_EQ(products(), 1);
}

TEST_F(AutocastFp8Test, NoStateIsAnErrorThatSaysHowToGiveIt) {
  EXPECT_ERROR(
      Autocast(torch::kCPU, Precision::fp8_mixed()),
      c10::ValueError,
      "fp8-mixed needs the state",
      "Fp8Linears");
  Autocast off(torch::kCPU, Precision::fp8_mixed(), {.enabled = false});
  EXPECT_EQ(
      linear->forward(torch::randn({16, 32})).scalar_type(), torch::kFloat);
}

} // namespace
} // namespace ampkit
