// The update kernels against the formulas in fp64, in every combination of
// formats and on every instruction set that is here.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kernels/float_type.h"
#include "kernels/optim_adafactor.h"
#include "kernels/optim_adagrad.h"
#include "kernels/optim_adam.h"
#include "kernels/optim_lamb.h"
#include "kernels/optim_lion.h"
#include "kernels/optim_rmsprop.h"
#include "kernels/optim_sgd.h"
#include "kernels/optim_targets.h"

namespace ampkit::kernels {
namespace {

constexpr float kGradFactor = 0.25F;

/// One parameter of `size` elements with its moments.
struct World {
  at::Tensor grad, weight, mirror, first, second;

  World(int64_t size, at::ScalarType grad_type, at::ScalarType mirror_type) {
    torch::manual_seed(3);
    grad = torch::randn({size}).to(grad_type);
    weight = torch::randn({size});
    first = torch::randn({size}) * 0.1;
    second = torch::rand({size}) * 0.1;
    if (mirror_type != at::kFloat) {
      mirror = weight.to(mirror_type);
    }
  }

  UpdateSpan span() const {
    UpdateSpan span{
        .grad =
            {grad.const_data_ptr(),
             type_of(grad),
             static_cast<size_t>(grad.numel())},
        .grad_factor = kGradFactor,
        .weight = weight.mutable_data_ptr<float>(),
        .first = first.mutable_data_ptr<float>(),
        .second = second.mutable_data_ptr<float>()};
    if (mirror.defined()) {
      span.mirror = mirror.mutable_data_ptr();
      span.mirror_type = type_of(mirror);
    }
    return span;
  }
};

const AdamFactors kAdamW{
    .one_minus_beta1 = 0.1F,
    .beta2 = 0.99F,
    .one_minus_beta2 = 0.01F,
    .decay = 0.999F,
    .step_size = 0.05F,
    .eps = 1e-6F};

/// `kAdamW` in fp64.
at::Tensor expected_adamw(const World& w) {
  const AdamFactors& f = kAdamW;
  const auto g = w.grad.to(at::kDouble) * kGradFactor;
  const auto m0 = w.first.to(at::kDouble);
  const auto m = m0 + (g - m0) * f.one_minus_beta1;
  const auto v = w.second.to(at::kDouble) * f.beta2 + g * g * f.one_minus_beta2;
  return w.weight.to(at::kDouble) * f.decay -
         m / (v.sqrt() + f.eps) * f.step_size;
}

/// Weights here are below 8: an ulp is at most 2^-20. Five roundings of the
/// quotient (at most 4 here) and two of the weight stay below that.
constexpr double kTolerance = 0x1p-20;

using Formats = std::tuple<at::ScalarType, at::ScalarType>;

class UpdateFormats : public ::testing::TestWithParam<Formats> {};

TEST_P(UpdateFormats, AdamWFollowsTheFormulaAndRoundsTheMirror) {
  const auto [grad_type, mirror_type] = GetParam();
  for_each_target([&] {
    World w(131, grad_type, mirror_type);
    const auto expected = expected_adamw(w);
    adam_update(kAdamW, w.span());
    const auto error = (w.weight.to(at::kDouble) - expected).abs().max();
    EXPECT_LT(error.item<double>(), kTolerance);
    if (w.mirror.defined()) {
      EXPECT_TRUE(w.mirror.equal(w.weight.to(mirror_type)));
    }
  });
}

TEST_P(UpdateFormats, AdamWOfPartsEqualsAdamWOfTheWholeToTheLastBit) {
  const auto [grad_type, mirror_type] = GetParam();
  for_each_target([&] {
    World whole(131, grad_type, mirror_type);
    World parts(131, grad_type, mirror_type);
    adam_update(kAdamW, whole.span());
    adam_update(kAdamW, slice(parts.span(), 0, 7));
    adam_update(kAdamW, slice(parts.span(), 7, 61));
    adam_update(kAdamW, slice(parts.span(), 68, 63));
    EXPECT_TRUE(whole.weight.equal(parts.weight));
    EXPECT_TRUE(whole.first.equal(parts.first));
    EXPECT_TRUE(whole.second.equal(parts.second));
    if (whole.mirror.defined()) {
      EXPECT_TRUE(whole.mirror.equal(parts.mirror));
    }
  });
}

TEST_P(UpdateFormats, SgdFollowsTheFormulaAndRoundsTheMirror) {
  const auto [grad_type, mirror_type] = GetParam();
  const SgdFactors f{
      .weight_decay = 0.01F,
      .momentum = 0.9F,
      .one_minus_dampening = 0.5F,
      .lr = 0.1F};
  for_each_target([&] {
    World w(131, grad_type, mirror_type);
    const auto p = w.weight.to(at::kDouble);
    const auto g = w.grad.to(at::kDouble) * kGradFactor + p * f.weight_decay;
    const auto m = w.first.to(at::kDouble) * f.momentum +
                   g * static_cast<double>(f.one_minus_dampening);
    sgd_update(f, w.span());
    const auto error = (w.weight.to(at::kDouble) - (p - m * f.lr)).abs().max();
    EXPECT_LT(error.item<double>(), kTolerance);
    if (w.mirror.defined()) {
      EXPECT_TRUE(w.mirror.equal(w.weight.to(mirror_type)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    All,
    UpdateFormats,
    ::testing::Combine(
        ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
        ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16)),
    [](const auto& tested) {
      return std::string(toString(std::get<0>(tested.param))) + "Grad" +
             toString(std::get<1>(tested.param)) + "Weight";
    });

/// Floats of every exponent, with the halfway cases of both 16-bit formats.
at::Tensor demanding_floats() {
  std::vector<float> values{
      0.0F,
      -0.0F,
      65504.0F,
      65519.0F,
      65520.0F,
      -65536.0F,
      0x1p-25F,
      0x1.8p-24F,
      0x1p-14F,
      0x1.ffcp-15F,
      0x1p-149F,
      3e38F,
      std::numeric_limits<float>::infinity()};
  for (int exponent = -40; exponent < 20; ++exponent) {
    for (const float mantissa :
         {1.0F,
          0x1.002p0F,
          0x1.006p0F,
          0x1.01p0F,
          0x1.03p0F,
          0x1.0101p0F,
          0x1.ffep0F,
          0x1.ffp0F,
          1.37F}) {
      values.push_back(std::ldexp(mantissa, exponent));
      values.push_back(-values.back());
    }
  }
  return torch::tensor(values);
}

class MirrorFormats : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(MirrorFormats, RoundsAsAtenDoes) {
  const auto type = GetParam();
  for_each_target([&] {
    const auto master = demanding_floats();
    const auto before = master.clone();
    auto mirror = master.to(type);
    const auto grad = torch::zeros_like(master);
    // lr = 0: nothing moves. The master would be replaced if it did not round
    // to what ATen made of it.
    sgd_update(
        {},
        {.grad =
             {grad.const_data_ptr(),
              Float::fp32,
              static_cast<size_t>(grad.numel())},
         .weight = master.mutable_data_ptr<float>(),
         .mirror = mirror.mutable_data_ptr(),
         .mirror_type = type_of(mirror)});
    EXPECT_TRUE(master.equal(before));
    EXPECT_TRUE(mirror.equal(before.to(type)));
  });
}

TEST_P(MirrorFormats, ReadsAllValuesAsAtenDoes) {
  const auto type = GetParam();
  for_each_target([&] {
    const auto bits = torch::arange(65536, torch::kInt).to(torch::kShort);
    auto mirror = bits.view(type).clone();
    // A master that rounds to no finite value: all of the mirror is news.
    const auto master =
        torch::full({65536}, std::numeric_limits<float>::quiet_NaN());
    const auto grad = torch::zeros({65536});
    sgd_update(
        {},
        {.grad = {grad.const_data_ptr(), Float::fp32, 65536},
         .weight = master.mutable_data_ptr<float>(),
         .mirror = mirror.mutable_data_ptr(),
         .mirror_type = type_of(mirror)});
    const auto expected = bits.view(type).to(at::kFloat);
    EXPECT_TRUE(master.allclose(expected, 0, 0, /*equal_nan=*/true));
    EXPECT_TRUE(mirror.allclose(bits.view(type), 0, 0, /*equal_nan=*/true));
  });
}

INSTANTIATE_TEST_SUITE_P(
    All,
    MirrorFormats,
    ::testing::Values(at::kHalf, at::kBFloat16),
    [](const auto& tested) { return std::string(toString(tested.param)); });

TEST(UpdateKernelTest, AParameterChangedBySomebodyElseReplacesTheMaster) {
  for_each_target([&] {
    World w(40, at::kFloat, at::kBFloat16);
    w.grad.zero_();
    const auto master = w.weight.clone();
    w.mirror[5] = 12.0F;
    sgd_update({.momentum = 0.9F, .first_step = true}, w.span());
    auto expected = master.clone();
    expected[5] = 12.0F;
    EXPECT_TRUE(w.weight.equal(expected)) << "others keep all their bits";
  });
}

TEST(UpdateKernelTest, InstructionSetsWithFusedMultiplyAddGiveTheSameBits) {
  at::Tensor first;
  for_each_target([&] {
    if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3)) == 0) {
      return;
    }
    World w(131, at::kHalf, at::kBFloat16);
    adam_update(kAdamW, w.span());
    if (!first.defined()) {
      first = w.weight;
    }
    EXPECT_TRUE(w.weight.equal(first));
  });
}

TEST(UpdateKernelTest, ClippingLimitsTheUnscaledGradientAndKeepsNan) {
  for_each_target([&] {
    const auto grad = torch::tensor(
        {8.F, -8.F, 1.F, std::numeric_limits<float>::quiet_NaN(), -4.F});
    const auto weight = torch::zeros({5});
    sgd_update(
        {.lr = 1},
        {.grad = {grad.const_data_ptr(), Float::fp32, 5},
         .grad_factor = 0.5F,
         .clip_value = 3,
         .weight = weight.mutable_data_ptr<float>()});
    EXPECT_TRUE(weight.allclose(
        torch::tensor(
            {-3.F, 3.F, -0.5F, std::numeric_limits<float>::quiet_NaN(), 2.F}),
        0,
        0,
        /*equal_nan=*/true))
        << weight;
  });
}

/// Runs `update` in every instruction set; they may differ by roundings only.
template <class Update>
void expect_agreement(const Update& update) {
  std::vector<at::Tensor> first;
  for_each_target([&] {
    World w(131, at::kHalf, at::kBFloat16);
    w.first.abs_(); // averages of squares, of some rules
    const auto third = torch::zeros({131});
    auto span = w.span();
    span.third = third.mutable_data_ptr<float>();
    update(span);
    const std::vector<at::Tensor> now{w.weight, w.first, w.second, third};
    if (first.empty()) {
      first = now;
      EXPECT_FALSE(w.weight.equal(World(131, at::kHalf, at::kBFloat16).weight));
    }
    for (size_t i = 0; i < now.size(); ++i) {
      EXPECT_TRUE(now[i].allclose(first[i], 1e-5, 1e-6));
    }
  });
}

TEST(UpdateKernelTest, InstructionSetsAgreeOnEveryRule) {
  expect_agreement([](const UpdateSpan& span) {
    AdamFactors factors = kAdamW;
    factors.penalty = 0.1F;
    factors.amsgrad = true;
    adam_update(factors, span);
  });
  expect_agreement([](const UpdateSpan& span) {
    adagrad_update(
        {.weight_decay = 0.1F, .step_size = 0.1F, .eps = 1e-3F}, span);
  });
  expect_agreement([](const UpdateSpan& span) {
    rmsprop_update(
        {.weight_decay = 0.1F,
         .alpha = 0.9F,
         .one_minus_alpha = 0.1F,
         .momentum = 0.5F,
         .lr = 0.1F,
         .eps = 1e-3F,
         .centered = true},
        span);
  });
  expect_agreement([](const UpdateSpan& span) {
    lion_update(
        {.beta1 = 0.9F,
         .one_minus_beta1 = 0.1F,
         .beta2 = 0.99F,
         .one_minus_beta2 = 0.01F,
         .decay = 0.9F,
         .lr = 0.1F},
        span);
  });
  expect_agreement([](const UpdateSpan& span) {
    const LambFactors factors{
        .beta1 = 0.9F,
        .one_minus_beta1 = 0.1F,
        .beta2 = 0.99F,
        .one_minus_beta2 = 0.01F,
        .eps = 1e-3F,
        .weight_decay = 0.1F};
    const auto sums = lamb_moments(factors, span);
    EXPECT_GT(sums.weight_squares, 0);
    EXPECT_GT(sums.direction_squares, 0);
    lamb_apply(factors, 0.1F, span);
  });
  expect_agreement([](const UpdateSpan& span) {
    adafactor_read_row(span, span.third);
    const AdafactorVariance variance{
        .row = 2, .columns = span.third, .least = 1e-3F};
    EXPECT_GT(adafactor_measure_row(span, variance), 0);
    adafactor_apply_row(span, variance, 0.9F, 0.1F);
  });
}

TEST(UpdateKernelTest, FirstSgdStepSetsTheBufferWithoutReadingIt) {
  for_each_target([&] {
    World w(40, at::kFloat, at::kFloat);
    w.first.fill_(std::numeric_limits<float>::quiet_NaN());
    sgd_update(
        {.momentum = 0.9F, .one_minus_dampening = 0.5F, .first_step = true},
        w.span());
    EXPECT_TRUE(w.first.equal(w.grad * kGradFactor));
  });
}

} // namespace
} // namespace ampkit::kernels
