#include <string>
#include <vector>

#include <ATen/autocast_mode.h>

#include "kernels/cpu_16bit_support.h"

namespace ampkit::kernels {
namespace {

using torch::Tensor;

struct Geometry {
  std::vector<int64_t> input;
  std::vector<int64_t> weight;
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  int64_t groups = 1;
  bool transposed = false;
  bool channels_last = false;
};

const std::vector<Geometry> kGeometries{
    {{3, 4, 20}, {6, 4, 3}, {1}, {1}, {1}},
    {{3, 4, 20}, {6, 2, 3}, {2}, {0}, {2}, 2},
    {{2, 4, 9, 11}, {6, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 4, 9, 11}, {6, 4, 1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {{2, 4, 9, 11}, {6, 2, 3, 2}, {2, 1}, {1, 0}, {1, 2}, 2},
    {{2, 4, 9, 11}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
    {{2, 4, 9, 11}, {6, 4, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, false, true},
    {{0, 4, 9, 11}, {6, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{2, 4, 9, 11}, {4, 3, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, true},
    {{2, 4, 9, 11}, {4, 3, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 2, true},
    {{1, 3, 5, 6, 7}, {4, 3, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {{1, 4, 5, 6, 7}, {4, 2, 2, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}, 2},
};

Tensor convolve(
    const Geometry& g,
    const Tensor& input,
    const Tensor& weight,
    const Tensor& bias) {
  const std::vector<int64_t> output_padding(g.stride.size(), 0);
  return torch::convolution(
      input,
      weight,
      bias,
      g.stride,
      g.padding,
      g.dilation,
      g.transposed,
      output_padding,
      g.groups);
}

class Cpu16BitConvolutionTest : public Cpu16BitTest {
 protected:
  Tensor input_of(const Geometry& g) const {
    auto input = randn(g.input);
    return g.channels_last ? input.contiguous(at::MemoryFormat::ChannelsLast)
                           : input;
  }
};

TEST_P(Cpu16BitConvolutionTest, ForwardAndBackwardAreRoundedFp32) {
  for (size_t i = 0; i < kGeometries.size(); ++i) {
    SCOPED_TRACE("geometry " + std::to_string(i));
    const auto& g = kGeometries[i];
    const auto channels = g.transposed ? g.weight[1] * g.groups : g.weight[0];
    for (const bool with_bias : {true, false}) {
      std::vector<Tensor> leaves{input_of(g), randn(g.weight)};
      if (with_bias) {
        leaves.push_back(randn({channels}));
      }
      std::vector<Tensor> leaves32;
      for (auto& leaf : leaves) {
        leaves32.push_back(up(leaf).requires_grad_());
        leaf.requires_grad_();
      }
      const auto output =
          convolve(g, leaves[0], leaves[1], with_bias ? leaves[2] : Tensor());
      const auto output32 = convolve(
          g, leaves32[0], leaves32[1], with_bias ? leaves32[2] : Tensor());
      expect_rounded(output.detach(), output32.detach());
      const auto grad = randn(output.sizes());
      output.backward(grad);
      output32.backward(up(grad));
      for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        expect_rounded(leaves[leaf].grad(), leaves32[leaf].grad());
      }
    }
  }
}

TEST_P(Cpu16BitConvolutionTest, OnlyTheWantedGradientsAreComputed) {
  const auto input = randn({2, 4, 9, 9});
  const auto weight = randn({6, 4, 3, 3});
  const auto [dx, dw, db] = torch::convolution_backward(
      randn({2, 6, 7, 7}),
      input,
      weight,
      at::IntArrayRef({6}),
      {1, 1},
      {0, 0},
      {1, 1},
      false,
      {0, 0},
      1,
      {false, true, false});
  EXPECT_FALSE(dx.defined());
  EXPECT_EQ(dw.scalar_type(), GetParam());
  EXPECT_FALSE(db.defined());
}

TEST_P(Cpu16BitConvolutionTest, ModulesAndPaddingModesReachTheSameKernel) {
  const auto input = randn({2, 4, 9, 11});
  const auto weight = randn({6, 4, 3, 3});
  const auto expected =
      torch::conv2d(up(input), up(weight), {}, 1, /*padding=*/1);
  expect_rounded(torch::conv2d(input, weight, {}, 1, "same"), expected);
  expect_rounded(torch::conv2d(input, weight, {}, 1, 1), expected);

  torch::nn::Conv2d module(torch::nn::Conv2dOptions(4, 6, 3).padding(1));
  module->to(GetParam());
  const torch::NoGradGuard no_grad;
  expect_rounded(
      module(input),
      torch::conv2d(up(input), up(module->weight), up(module->bias), 1, 1));
}

TEST_P(Cpu16BitConvolutionTest, AutocastAroundBackwardDoesNotRoundTwice) {
  auto input = randn({2, 4, 9, 11});
  auto weight = randn({6, 4, 3, 3}).requires_grad_();
  auto weight32 = up(weight.detach()).requires_grad_();
  const auto grad = randn({2, 6, 9, 11});
  torch::conv2d(up(input), weight32, {}, 1, 1).backward(up(grad));
  at::autocast::set_autocast_dtype(at::kCPU, GetParam());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  torch::conv2d(input, weight, {}, 1, 1).backward(grad);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  expect_rounded(weight.grad(), weight32.grad());
}

TEST_P(Cpu16BitConvolutionTest, ErrorsAreLibTorchsOwn) {
  const auto input = randn({2, 4, 9, 11});
  const auto weight = randn({6, 4, 3, 3});
  expect_stock_error([&] { torch::conv2d(input, randn({6, 5, 3, 3})); });
  expect_stock_error([&] { torch::conv2d(input, randn({6, 4, 30, 3})); });
  expect_stock_error([&] { torch::conv2d(input, weight, randn({5})); });
  expect_stock_error([&] { torch::conv2d(input, up(weight)); });
  expect_stock_error([&] { torch::conv2d(up(input), weight); });
  expect_stock_error([&] { torch::conv2d(input, weight, up(randn({6}))); });
  expect_stock_error([&] {
    torch::convolution(
        input, weight, {}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 3);
  });
  expect_stock_error([&] { torch::conv1d(randn({4}), randn({6, 4, 3})); });
}

INSTANTIATE_FOR_16BIT(Cpu16BitConvolutionTest);

} // namespace
} // namespace ampkit::kernels
