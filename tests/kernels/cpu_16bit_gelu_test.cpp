#include <ATen/CPUFunctions.h>
#include <torch/torch.h>

#include "kernels/cpu_16bit.h"
#include "kernels/cpu_16bit_support.h"

namespace ampkit::kernels {
namespace {

using torch::Tensor;

class Cpu16BitGeluTest : public Cpu16BitTest {
 protected:
  // Both from bf16 inputs, one rounding apart at the most.
  static void expect_near(const Tensor& actual, const Tensor& fp32) {
    ASSERT_EQ(actual.sizes(), fp32.sizes());
    EXPECT_TRUE(actual.is_contiguous());
    EXPECT_TRUE(torch::allclose(actual.to(torch::kFloat), fp32, 0.0079, 1e-4));
  }
};

TEST_P(Cpu16BitGeluTest, ForwardAndBackwardAreThoseOfFp32) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {32, 64}, {2, 2}, {4}, {3, 5, 2}, {7}, {1, 1}, {300, 70}, {0, 4}}) {
    const auto x = randn(shape);
    const auto gradient = randn(shape);
    expect_near(torch::gelu(x), torch::gelu(up(x)));
    expect_near(
        at::gelu_backward(gradient, x), at::gelu_backward(up(gradient), up(x)));
  }
}

TEST_P(Cpu16BitGeluTest, LayoutsThatAreNotContiguousStayStock) {
  const auto x = randn({8, 6});
  const auto gradient = randn({6, 8});
  EXPECT_TRUE(torch::equal(torch::gelu(x.t()), at::cpu::gelu(x.t())));
  EXPECT_EQ(torch::gelu(x.t()).strides(), x.t().strides());
  EXPECT_TRUE(torch::equal(
      at::gelu_backward(gradient, x.t()),
      at::cpu::gelu_backward(gradient, x.t())));
}

TEST_P(Cpu16BitGeluTest, TanhFormAndSlicesOfAStorageWork) {
  const auto x = randn({4, 8});
  EXPECT_TRUE(torch::equal(torch::gelu(x, "tanh"), at::cpu::gelu(x, "tanh")));
  expect_near(torch::gelu(x[2]), torch::gelu(up(x[2])));
}

TEST_P(Cpu16BitGeluTest, GradientsFlowThroughAutograd) {
  auto x = randn({16, 16}).requires_grad_();
  torch::gelu(x).sum().backward();
  auto reference = up(x.detach()).requires_grad_();
  torch::gelu(reference).sum().backward();
  expect_near(x.grad(), reference.grad());
}

TEST_P(Cpu16BitGeluTest, NonFiniteValuesStayVisible) {
  auto x = randn({4, 4});
  x[0][0] = std::numeric_limits<float>::quiet_NaN();
  x[1][1] = std::numeric_limits<float>::infinity();
  const auto y = torch::gelu(x);
  EXPECT_TRUE(torch::isnan(y[0][0]).item<bool>());
  EXPECT_TRUE(torch::isinf(y[1][1]).item<bool>());
}

TEST_P(Cpu16BitGeluTest, MixedDtypesAreStockErrorsWordForWord) {
  const auto x = randn({4, 4});
  expect_stock_error([&] { (void)at::gelu_backward(torch::ones({4, 3}), x); });
}

INSTANTIATE_FOR_16BIT(Cpu16BitGeluTest);

} // namespace
} // namespace ampkit::kernels
