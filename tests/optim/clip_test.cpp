#include <ampkit/optim/clip.h>

#include <cmath>

#include <torch/torch.h>

#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::optim {
namespace {

at::Tensor with_grad(const at::Tensor& grad) {
  auto parameter = torch::zeros_like(grad).requires_grad_();
  parameter.mutable_grad() = grad.clone();
  return parameter;
}

TEST(ClipGradNormTest, ScalesToTheLimitAndReturnsTheNormBefore) {
  const std::vector<at::Tensor> parameters{
      with_grad(torch::tensor({3.F, 0.F})),
      torch::zeros({2}).requires_grad_(), // no gradient
      with_grad(torch::tensor({4.F}))};
  EXPECT_EQ(clip_grad_norm_(parameters, 2.5).item<float>(), 5);
  EXPECT_TRUE(
      parameters[0].grad().allclose(torch::tensor({1.5F, 0.F}), 1e-6, 0));
  EXPECT_TRUE(parameters[2].grad().allclose(torch::tensor({2.F}), 1e-6, 0));
}

TEST(ClipGradNormTest, GradientsWithinTheLimitKeepTheirBits) {
  const auto grad = torch::randn({100});
  const auto parameter = with_grad(grad);
  clip_grad_norm_({parameter}, 1e6);
  EXPECT_TRUE(parameter.grad().equal(grad));
}

TEST(ClipGradNormTest, OneInfDoesNotTurnEveryGradientIntoZeroOrNan) {
  for (const float bad : {kInf, -kInf, kNan}) {
    for (const double type : {1.0, 2.0, double{kInf}}) {
      const auto grad = torch::tensor({1.F, bad, 3.F});
      const auto other = torch::tensor({7.F});
      const std::vector<at::Tensor> parameters{
          with_grad(grad), with_grad(other)};
      const auto norm = clip_grad_norm_(parameters, 1.0, {.norm_type = type});
      EXPECT_FALSE(norm.isfinite().item<bool>());
      EXPECT_TRUE(parameters[0].grad().allclose(grad, 0, 0, true));
      EXPECT_TRUE(parameters[1].grad().equal(other));
      EXPECT_ERROR(
          clip_grad_norm_(parameters, 1.0, {type, true}),
          c10::Error,
          "left as they are");
      EXPECT_TRUE(parameters[1].grad().equal(other));
    }
  }
}

TEST(ClipGradNormTest, NormOfFp16GradientsDoesNotOverflow) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    // Squares of 300 overflow fp16, as their sum does; a factor of 1e-8 would
    // be 0 in it.
    const auto parameter = with_grad(torch::full({4096}, 300.0F).to(type));
    const auto norm = clip_grad_norm_({parameter}, 1e-3);
    EXPECT_NEAR(norm.item<float>(), 300 * 64, 1);
    const auto clipped = parameter.grad().to(at::kDouble).norm();
    EXPECT_NEAR(clipped.item<double>(), 1e-3, 1e-5) << type;
  }
}

TEST(ClipGradNormTest, SumsOfSquaresBeyondFp32DontOverflow) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 4; ++i) {
    parameters.push_back(with_grad(torch::full({1}, 1e19F)));
  }
  EXPECT_FLOAT_EQ(clip_grad_norm_(parameters, 1.0).item<float>(), 2e19F);
  EXPECT_NEAR(parameters[0].grad().item<float>(), 0.5, 1e-6);
}

TEST(ClipGradNormTest, NoGradientsGiveZero) {
  EXPECT_EQ(clip_grad_norm_({torch::zeros({2})}, 1.0).item<float>(), 0);
}

TEST(ClipGradNormTest, ArgumentsAreChecked) {
  const auto parameter = with_grad(torch::ones({2}));
  EXPECT_ERROR(
      clip_grad_norm_({parameter}, 0), c10::ValueError, "max_norm", "got 0");
  EXPECT_ERROR(clip_grad_norm_({parameter}, kNan), c10::ValueError, "max_norm");
  EXPECT_ERROR(
      clip_grad_norm_({parameter}, 1, {.norm_type = -2}),
      c10::ValueError,
      "norm_type");
  EXPECT_TRUE(parameter.grad().equal(torch::ones({2})));
}

TEST(ClipGradNormTest, SparseGradientsAreRefused) {
  auto parameter = torch::zeros({3}).requires_grad_();
  parameter.mutable_grad() = torch::ones({3}).to_sparse();
  EXPECT_ERROR(clip_grad_norm_({parameter}, 1), c10::Error, "parameter 0");
  EXPECT_ERROR(clip_grad_value_({parameter}, 1), c10::Error, "Sparse");
}

TEST(ClipGradValueTest, LimitsEachElementAndKeepsNan) {
  const auto parameter = with_grad(torch::tensor({-3.F, 0.5F, kInf, kNan}));
  clip_grad_value_({parameter}, 2);
  EXPECT_TRUE(parameter.grad().allclose(
      torch::tensor({-2.F, 0.5F, 2.F, kNan}), 0, 0, true));
  EXPECT_ERROR(clip_grad_value_({parameter}, 0), c10::ValueError, "clip_value");
}

TEST(AdaptiveClipGradTest, RowsAreLimitedByTheirWeightsAndOthersKeepTheirBits) {
  auto weight = torch::tensor({{3.F, 4.F}, {3.F, 4.F}}).requires_grad_();
  const auto grad = torch::tensor({{30.F, 40.F}, {0.3F, 0.4F}});
  weight.mutable_grad() = grad.clone();
  const auto unused = torch::zeros({2}).requires_grad_();
  adaptive_clip_grad_({unused, weight}, {.clip_factor = 0.5});
  EXPECT_TRUE(weight.grad()[0].allclose(torch::tensor({1.5F, 2.F}), 1e-6, 0));
  EXPECT_TRUE(weight.grad()[1].equal(grad[1]));
}

TEST(AdaptiveClipGradTest, ANonFiniteRowStaysAsItIsAndTheOthersAreClipped) {
  auto weight = torch::ones({2, 2}).requires_grad_();
  weight.mutable_grad() = torch::tensor({{kInf, 1.F}, {8.F, 0.F}});
  adaptive_clip_grad_({weight}, {.clip_factor = 1});
  EXPECT_TRUE(weight.grad()[0].equal(torch::tensor({kInf, 1.F})));
  EXPECT_NEAR(weight.grad()[1][0].item<float>(), std::sqrt(2.0), 1e-6);
}

TEST(AdaptiveClipGradTest, OptionsAreChecked) {
  const auto parameter = with_grad(torch::full({2}, 9.0F));
  EXPECT_ERROR(
      adaptive_clip_grad_({parameter}, {.clip_factor = 0}),
      c10::ValueError,
      "clip_factor",
      "got 0");
  EXPECT_ERROR(
      adaptive_clip_grad_({parameter}, {.eps = -1}), c10::ValueError, "eps");
  EXPECT_TRUE(parameter.grad().equal(torch::full({2}, 9.0F)));
}

} // namespace
} // namespace ampkit::optim
