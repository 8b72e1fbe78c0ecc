#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/generated/Functions.h>

#include "kernels/cpu_16bit_support.h"

namespace ampkit::kernels {
namespace {

using torch::Tensor;

/// Every operand in the layouts that training meets.
class Cpu16BitMatmulTest : public Cpu16BitTest {
 protected:
  /// A [rows, columns] matrix: dense, transposed, every other column of a
  /// larger one, and one row repeated.
  std::vector<Tensor> layouts(int64_t rows, int64_t columns) const {
    return {
        randn({rows, columns}),
        randn({columns, rows}).t(),
        randn({rows, 2 * columns}).slice(1, 0, 2 * columns, 2),
        randn({1, columns}).expand({rows, columns})};
  }
};

TEST_P(Cpu16BitMatmulTest, MmIsTheRoundedFp32ProductInEveryLayout) {
  for (const auto& left : layouts(17, 33)) {
    for (const auto& right : layouts(33, 9)) {
      expect_rounded(torch::mm(left, right), torch::mm(up(left), up(right)));
    }
  }
}

TEST_P(Cpu16BitMatmulTest, OneRowOneColumnAndEmptyProducts) {
  for (const auto& [n, k, m] : std::vector<std::array<int64_t, 3>>{
           {1, 64, 64}, {64, 64, 1}, {1, 1, 1}, {0, 5, 3}, {3, 0, 5}}) {
    const auto left = randn({n, k});
    const auto right = randn({k, m});
    expect_rounded(torch::mm(left, right), torch::mm(up(left), up(right)));
    const auto bias = randn({m});
    expect_rounded(
        torch::addmm(bias, left, right),
        torch::addmm(up(bias), up(left), up(right)));
  }
}

TEST_P(Cpu16BitMatmulTest, LargeProductsReuseTheWorkspaceUnharmed) {
  const auto left = randn({256, 300});
  const auto right = randn({300, 128});
  const auto expected = torch::mm(up(left), up(right));
  const auto first = torch::mm(left, right);
  torch::mm(randn({512, 300}), right);
  expect_rounded(first, expected);
  expect_rounded(torch::mm(left, right), expected);
}

TEST_P(Cpu16BitMatmulTest, AddmmBroadcastsScalesAndIgnoresSelfAtBetaZero) {
  const auto left = randn({6, 20});
  const auto right = randn({20, 4});
  for (const auto& self :
       {randn({4}), randn({6, 1}), randn({6, 4}), randn({1, 4})}) {
    for (const double beta : {1.0, 0.5}) {
      expect_rounded(
          torch::addmm(self, left, right, beta, 2.0),
          torch::addmm(up(self), up(left), up(right), beta, 2.0));
    }
  }
  const auto nan = torch::full({4}, NAN, torch::dtype(GetParam()));
  expect_rounded(
      torch::addmm(nan, left, right, 0), torch::mm(up(left), up(right)));
}

TEST_P(Cpu16BitMatmulTest, InPlaceFormsWriteIntoTheGivenMemory) {
  const auto left = randn({6, 20});
  const auto right = randn({20, 4});
  auto self = randn({4, 6}).t();
  const auto* memory = self.const_data_ptr();
  const auto expected = torch::addmm(up(self), up(left), up(right), 0.5, 2.0);
  self.addmm_(left, right, 0.5, 2.0);
  EXPECT_EQ(self.const_data_ptr(), memory);
  EXPECT_EQ(self.strides(), at::IntArrayRef({1, 6}));
  expect_rounded(self.contiguous(), expected);

  auto vector = randn({6});
  const auto summed =
      torch::addmv(up(vector), up(left), up(right).select(1, 0));
  vector.addmv_(left, right.select(1, 0));
  expect_rounded(vector, summed);
}

TEST_P(Cpu16BitMatmulTest, OutFormsResizeAndKeepStrides) {
  const auto left = randn({6, 20});
  const auto right = randn({20, 4});
  const auto expected = torch::mm(up(left), up(right));
  auto empty = torch::empty({0}, torch::dtype(GetParam()));
  torch::mm_out(empty, left, right);
  expect_rounded(empty, expected);

  auto transposed = torch::empty({4, 6}, torch::dtype(GetParam())).t();
  torch::mm_out(transposed, left, right);
  EXPECT_EQ(transposed.strides(), at::IntArrayRef({1, 6}));
  expect_rounded(transposed.contiguous(), expected);

  const auto bias = randn({4});
  torch::addmm_out(empty, bias, left, right);
  expect_rounded(empty, torch::addmm(up(bias), up(left), up(right)));
}

TEST_P(Cpu16BitMatmulTest, BatchedProducts) {
  const auto left = randn({5, 7, 16});
  for (const auto& right :
       {randn({5, 16, 9}),
        randn({5, 9, 16}).transpose(1, 2),
        randn({1, 16, 9}).expand({5, 16, 9})}) {
    expect_rounded(torch::bmm(left, right), torch::bmm(up(left), up(right)));
    for (const auto& self : {randn({9}), randn({5, 7, 9})}) {
      expect_rounded(
          torch::baddbmm(self, left, right, 2.0, 0.5),
          torch::baddbmm(up(self), up(left), up(right), 2.0, 0.5));
    }
    const auto sum = randn({7, 9});
    expect_rounded(
        torch::addbmm(sum, left, right),
        torch::addbmm(up(sum), up(left), up(right)));
    auto self = randn({5, 7, 9});
    const auto expected = torch::baddbmm(up(self), up(left), up(right));
    expect_rounded(self.baddbmm_(left, right), expected);
    auto out = torch::empty({0}, torch::dtype(GetParam()));
    expect_rounded(
        torch::bmm_out(out, left, right), torch::bmm(up(left), up(right)));
  }
}

TEST_P(Cpu16BitMatmulTest, VectorProducts) {
  const auto vector = randn({33});
  for (const auto& matrix : layouts(17, 33)) {
    expect_rounded(
        torch::mv(matrix, vector), torch::mv(up(matrix), up(vector)));
    const auto self = randn({17});
    expect_rounded(
        torch::addmv(self, matrix, vector, 0.5, 3.0),
        torch::addmv(up(self), up(matrix), up(vector), 0.5, 3.0));
  }
  expect_rounded(
      torch::dot(vector, vector), torch::dot(up(vector), up(vector)));
}

TEST_P(Cpu16BitMatmulTest, MatmulOfEveryRank) {
  const std::vector<std::pair<Tensor, Tensor>> pairs{
      {randn({16}), randn({16})},
      {randn({5, 16}), randn({16})},
      {randn({16}), randn({16, 7})},
      {randn({5, 16}), randn({16, 7})},
      {randn({3, 5, 16}), randn({16, 7})},
      {randn({3, 5, 16}), randn({16})},
      {randn({5, 16}), randn({3, 16, 7})},
      {randn({2, 3, 5, 16}), randn({3, 16, 7})},
      {randn({2, 3, 5, 16}), randn({2, 1, 16, 7})},
  };
  for (const auto& [left, right] : pairs) {
    expect_rounded(
        torch::matmul(left, right), torch::matmul(up(left), up(right)));
  }
}

TEST_P(Cpu16BitMatmulTest, GradientsAreRoundedFp32GradientsInTheLeafsDtype) {
  auto left = randn({3, 9, 20}).requires_grad_();
  auto right = randn({3, 20, 4}).requires_grad_();
  auto left32 = up(left.detach()).requires_grad_();
  auto right32 = up(right.detach()).requires_grad_();
  const auto grad = randn({3, 9, 4});
  torch::matmul(left, right).backward(grad);
  torch::matmul(left32, right32).backward(up(grad));
  expect_rounded(left.grad(), left32.grad());
  expect_rounded(right.grad(), right32.grad());
}

TEST_P(Cpu16BitMatmulTest, LinearLayerForwardAndBackward) {
  for (const auto& input_value :
       {randn({16}), randn({5, 16}), randn({2, 5, 16})}) {
    const auto weight_value = randn({8, 16});
    const auto bias = randn({8});
    auto input = input_value.clone().requires_grad_();
    auto weight = weight_value.clone().requires_grad_();
    auto input32 = up(input_value).requires_grad_();
    auto weight32 = up(weight_value).requires_grad_();
    const auto output = torch::linear(input, weight, bias);
    const auto output32 = torch::linear(input32, weight32, up(bias));
    expect_rounded(output.detach(), output32.detach());
    const auto grad = randn(output.sizes());
    output.backward(grad);
    output32.backward(up(grad));
    expect_rounded(input.grad(), input32.grad());
    expect_rounded(weight.grad(), weight32.grad());
  }
}

TEST_P(Cpu16BitMatmulTest, ActivationsSavedForBackwardStayIn16Bits) {
  const auto left = randn({8, 8}).requires_grad_();
  const auto right = randn({8, 8}).requires_grad_();
  const auto product = torch::mm(left, right);
  const auto* node = dynamic_cast<torch::autograd::generated::MmBackward0*>(
      product.grad_fn().get());
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->self_.unpack().scalar_type(), GetParam());
  EXPECT_EQ(node->mat2_.unpack().scalar_type(), GetParam());
}

TEST_P(Cpu16BitMatmulTest, ErrorsAreLibTorchsOwn) {
  const auto a = randn({3, 4});
  const auto b = randn({3, 4, 5});
  const auto v = randn({9});
  const auto fp32 = torch::randn({4, 5});
  expect_stock_error([&] { torch::mm(a, a); });
  expect_stock_error([&] { torch::mm(b, a); });
  expect_stock_error([&] { torch::mm(a, fp32); });
  expect_stock_error([&] { torch::addmm(v, a, a.t()); });
  expect_stock_error([&] { torch::addmm(v, a, a); });
  expect_stock_error([&] { torch::addmm(torch::ones({3}), a, a.t()); });
  expect_stock_error([&] { torch::bmm(b, b); });
  expect_stock_error([&] { torch::bmm(a, b); });
  expect_stock_error([&] { torch::baddbmm(v, b, b.transpose(1, 2)); });
  expect_stock_error([&] { torch::mv(a, v); });
  expect_stock_error([&] { torch::dot(v, randn({8})); });
  expect_stock_error([&] { torch::linear(a, randn({5, 3})); });
  expect_stock_error([&] { randn({4}).addmm_(a, a.t()); });
  expect_stock_error([&] {
    auto out = torch::empty({3, 3});
    torch::mm_out(out, a, a.t());
  });
}

INSTANTIATE_FOR_16BIT(Cpu16BitMatmulTest);

} // namespace
} // namespace ampkit::kernels
