#include <limits>
#include <optional>
#include <tuple>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include "kernels/cpu_16bit_support.h"

namespace ampkit::kernels {
namespace {

using torch::Tensor;

class Cpu16BitAttentionTest : public Cpu16BitTest {
 protected:
  /// [batch 2, heads 3, length, 16]
  Tensor heads(int64_t length) const { return randn({2, 3, length, 16}); }

  /// Forward and backward of the flash kernel itself. The backward one gets
  /// the rounded output, which is what is saved for it.
  void expect_flash_rounded(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      bool is_causal,
      const std::optional<Tensor>& mask,
      const std::optional<Tensor>& mask32,
      std::optional<double> scale) const {
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, mask, scale);
    const auto [out32, lse32] = at::_scaled_dot_product_flash_attention_for_cpu(
        up(query), up(key), up(value), 0.0, is_causal, mask32, scale);
    expect_rounded(out, out32);
    EXPECT_TRUE(lse.equal(lse32));
    const auto grad = randn(out.sizes());
    const auto [dq, dk, dv] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, key, value, out, lse, 0.0, is_causal, mask, scale);
    const auto [dq32, dk32, dv32] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            up(grad),
            up(query),
            up(key),
            up(value),
            up(out),
            lse32,
            0.0,
            is_causal,
            mask32,
            scale);
    expect_rounded(dq, dq32);
    expect_rounded(dk, dk32);
    expect_rounded(dv, dv32);
  }
};

TEST_P(Cpu16BitAttentionTest, PlainCausalAndScaled) {
  const auto query = heads(12);
  const auto key = heads(12);
  const auto value = heads(12);
  const auto none = std::nullopt;
  expect_flash_rounded(query, key, value, false, none, none, none);
  expect_flash_rounded(query, key, value, true, none, none, none);
  expect_flash_rounded(query, key, value, true, none, none, 0.3);
}

TEST_P(Cpu16BitAttentionTest, MasksOfBothDtypes) {
  const auto mask = torch::where(
      torch::rand({2, 1, 7, 12}) < 0.3,
      torch::full({}, -std::numeric_limits<float>::infinity()),
      torch::randn({2, 1, 7, 12}));
  const auto mask16 = mask.to(GetParam());
  expect_flash_rounded(
      heads(7), heads(12), heads(12), false, mask16, up(mask16), {});
  expect_flash_rounded(heads(7), heads(12), heads(12), false, mask, mask, {});
}

TEST_P(Cpu16BitAttentionTest, HeadsAsAStridedViewOfOneProjection) {
  const auto qkv = randn({2, 12, 3, 3, 16}).permute({2, 0, 3, 1, 4});
  const auto none = std::nullopt;
  expect_flash_rounded(qkv[0], qkv[1], qkv[2], true, none, none, none);
}

TEST_P(Cpu16BitAttentionTest, PublicOpTrainsLeavesInTheirOwnDtype) {
  for (const double dropout : {0.0, 0.25}) { // flash, and the math path
    auto query = heads(12).requires_grad_();
    auto key = heads(12).requires_grad_();
    auto value = heads(12).requires_grad_();
    auto value32 = up(value.detach()).requires_grad_();
    const auto grad = heads(12);
    torch::manual_seed(1);
    const auto out = torch::scaled_dot_product_attention(
        query, key, value, {}, dropout, /*is_causal=*/true);
    torch::manual_seed(1);
    const auto out32 = torch::scaled_dot_product_attention(
        up(query), up(key), value32, {}, dropout, /*is_causal=*/true);
    EXPECT_EQ(out.scalar_type(), GetParam());
    out.backward(grad);
    out32.backward(up(grad));
    expect_rounded(value.grad(), value32.grad());
    EXPECT_EQ(query.grad().scalar_type(), GetParam());
    EXPECT_EQ(key.grad().scalar_type(), GetParam());
    EXPECT_TRUE(query.grad().isfinite().all().item<bool>());
  }
}

TEST_P(Cpu16BitAttentionTest, MultiheadModuleIsNearItsFp32Self) {
  torch::nn::MultiheadAttention module(32, 4);
  module->to(GetParam());
  const auto input = randn({10, 2, 32});
  const auto output = std::get<0>(module(input, input, input));
  module->to(torch::kFloat);
  const auto output32 = std::get<0>(module(up(input), up(input), up(input)));
  EXPECT_EQ(output.scalar_type(), GetParam());
  // Five roundings to 8 or 11 bits on values below 1 lie between the two.
  const double unit = GetParam() == torch::kHalf ? 0x1p-11 : 0x1p-8;
  EXPECT_LT((up(output) - output32).abs().max().item<double>(), 5 * unit);
}

TEST_P(Cpu16BitAttentionTest, ErrorsAreLibTorchsOwn) {
  const auto query = heads(12);
  const auto flash = [](const Tensor& q,
                        const Tensor& k,
                        double dropout,
                        const std::optional<Tensor>& mask) {
    return [=] {
      at::_scaled_dot_product_flash_attention_for_cpu(
          q, k, k, dropout, false, mask);
    };
  };
  expect_stock_error(flash(query, query, 0.5, {}));
  expect_stock_error(flash(query, up(query), 0.0, {}));
  expect_stock_error(flash(randn({3, 12, 16}), query, 0.0, {}));
  expect_stock_error(
      flash(query, query, 0.0, torch::ones({12, 12}, torch::kBool)));
  expect_stock_error(
      [&] { torch::scaled_dot_product_attention(query, randn({8}), query); });
}

INSTANTIATE_FOR_16BIT(Cpu16BitAttentionTest);

} // namespace
} // namespace ampkit::kernels
