#include <ampkit/amp/gradient_accumulation.h>

#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>

#include "support/errors.h"

namespace ampkit {
namespace {

// Token losses of a linear classifier: [n] for inputs [n, 6].
torch::Tensor loss_of(
    torch::nn::Linear& model,
    const torch::Tensor& x,
    const torch::Tensor& y,
    at::Reduction::Reduction reduction) {
  return torch::cross_entropy_loss(
      model->forward(x).to(torch::kFloat), y, {}, reduction);
}

struct Data {
  torch::Tensor x = torch::randn({10, 6});
  torch::Tensor y = torch::randint(0, 4, {10});
};

std::vector<torch::Tensor> take_gradients(torch::nn::Module& model) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : model.parameters()) {
    gradients.push_back(parameter.grad().clone());
    parameter.mutable_grad().reset();
  }
  return gradients;
}

class Accumulation : public testing::Test {
 protected:
  Accumulation() { torch::manual_seed(3); }

  std::vector<torch::Tensor> big_batch() {
    loss_of(model_, data_.x, data_.y, at::Reduction::Mean).backward();
    return take_gradients(*model_);
  }

  void expect_near(const std::vector<torch::Tensor>& expected) {
    const auto found = take_gradients(*model_);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-6, 1e-7))
          << found[i] << expected[i];
    }
  }

  void weigh_and_backward(
      GradientAccumulation& window, int64_t from, int64_t to, bool mean) {
    const auto loss = loss_of(
        model_,
        data_.x.slice(0, from, to),
        data_.y.slice(0, from, to),
        mean ? at::Reduction::Mean : at::Reduction::Sum);
    (mean ? window.weigh_mean(loss, to - from) : window.weigh(loss, to - from))
        .backward();
  }

  torch::nn::Linear model_{6, 4};
  Data data_;
};

TEST_F(Accumulation, MicroBatchesOfUnequalSizeGiveTheGradientOfTheBigBatch) {
  const auto expected = big_batch();
  for (const bool mean : {false, true}) {
    GradientAccumulation window(model_->parameters(), {.micro_batches = 3});
    weigh_and_backward(window, 0, 6, mean);
    weigh_and_backward(window, 6, 7, mean);
    EXPECT_FALSE(window.full());
    weigh_and_backward(window, 7, 10, mean);
    EXPECT_TRUE(window.full());
    EXPECT_EQ(window.count(), 10);
    window.finish();
    expect_near(expected);
    EXPECT_EQ(window.micro_batches(), 0);
  }
}

TEST_F(Accumulation, LastWindowOfAnEpochIsNotDividedByBatchesItDidNotHave) {
  const auto expected = big_batch();
  GradientAccumulation window(model_->parameters(), {.micro_batches = 16});
  weigh_and_backward(window, 0, 8, false);
  weigh_and_backward(window, 8, 10, false);
  EXPECT_FALSE(window.full());
  window.finish();
  expect_near(expected);
}

TEST_F(Accumulation, BatchOfPaddingOnlyCountsForNothing) {
  const auto expected = big_batch();
  GradientAccumulation window(model_->parameters(), {.micro_batches = 3});
  window.weigh(model_->forward(data_.x).sum() * 0, 0).backward();
  weigh_and_backward(window, 0, 5, false);
  weigh_and_backward(window, 5, 10, false);
  window.finish();
  expect_near(expected);
}

TEST_F(Accumulation, RanksWithDifferentNumbersOfSamplesGiveTheGlobalMean) {
  const auto expected = big_batch();
  GradientAccumulationOptions options{
      .micro_batches = 1,
      .expected_count = 8,
      .sum_over_ranks = [](const at::Tensor&) {
        return at::scalar_tensor(10, at::TensorOptions(at::kLong));
      }};
  // One module plays both ranks: its gradients are summed over them.
  GradientAccumulation first(model_->parameters(), options);
  weigh_and_backward(first, 0, 3, false);
  first.finish();
  const auto of_first = take_gradients(*model_);
  GradientAccumulation second(model_->parameters(), options);
  weigh_and_backward(second, 3, 10, false);
  second.finish();
  for (size_t i = 0; i < of_first.size(); ++i) {
    model_->parameters()[i].mutable_grad() += of_first[i];
  }
  expect_near(expected);
}

TEST_F(Accumulation, WindowWithAnOverflowIsGivenUpAsAWhole) {
  torch::optim::SGD optimizer(model_->parameters(), /*lr=*/0.1);
  GradScaler scaler({.init_scale = 1024});
  const auto before = model_->weight.clone();
  const auto gradient = big_batch().front();
  GradientAccumulation window(model_->parameters(), {.micro_batches = 2});
  const auto micro_batch = [&](double factor) {
    const auto loss =
        loss_of(model_, data_.x * factor, data_.y, at::Reduction::Sum);
    scaler.scale(window.weigh(loss, 10)).backward();
  };
  micro_batch(std::numeric_limits<double>::infinity());
  micro_batch(1);
  window.finish();
  EXPECT_TRUE(scaler.step(optimizer).skipped());
  scaler.update();
  optimizer.zero_grad();
  EXPECT_TRUE(model_->weight.equal(before));
  micro_batch(1); // nothing of the lost window is left
  micro_batch(1);
  window.finish();
  EXPECT_TRUE(scaler.step(optimizer).stepped());
  EXPECT_TRUE(
      torch::allclose(model_->weight, before - 0.1 * gradient, 1e-6, 1e-7));
}

TEST_F(Accumulation, AbandonedWindowLeavesNothingInTheNext) {
  const auto expected = big_batch();
  GradientAccumulation window(model_->parameters(), {.micro_batches = 2});
  weigh_and_backward(window, 2, 4, false);
  window.abandon();
  EXPECT_FALSE(model_->weight.grad().defined());
  weigh_and_backward(window, 0, 6, false);
  weigh_and_backward(window, 6, 10, false);
  window.finish();
  expect_near(expected);
}

// The sum of 1024 gradients near 1e-3 of a 16-bit parameter.
torch::Tensor sum_of_small_gradients(at::ScalarType dtype, bool fp32) {
  const auto weight = torch::ones({3}, torch::dtype(dtype).requires_grad(true));
  GradientAccumulation window(
      {weight}, {.micro_batches = 1024, .fp32_gradients = fp32});
  for (int i = 0; i < 1024; ++i) {
    window.weigh((weight * 1.024).sum().to(torch::kFloat), 1).backward();
  }
  window.finish();
  return weight.grad();
}

TEST_F(Accumulation, SixteenBitGradientsDoNotStallInALongSum) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto truth = torch::tensor(1.024).to(dtype).item<double>();
    const auto wide = sum_of_small_gradients(dtype, true);
    EXPECT_EQ(wide.scalar_type(), torch::kFloat);
    EXPECT_NEAR(wide[0].item<double>(), truth, 1e-6);
  }
  // What happens without: from 0.5 on, 1e-3 is less than half a bf16 step.
  const auto narrow = sum_of_small_gradients(torch::kBFloat16, false);
  EXPECT_EQ(narrow.scalar_type(), torch::kBFloat16);
  EXPECT_LE(narrow[0].item<double>(), 0.5);
}

TEST_F(Accumulation, SixteenBitGradientsComeBackWithTheWindowsEnd) {
  const auto weight =
      torch::ones({3}, torch::dtype(torch::kBFloat16).requires_grad(true));
  {
    const GradientAccumulation window({weight});
    weight.sum().backward();
    EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
    weight.mutable_grad().reset();
  }
  weight.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), torch::kBFloat16);
  EXPECT_ERROR(
      GradientAccumulation({weight}),
      c10::Error,
      "parameter 0 (BFloat16 [3]) already has a 16-bit gradient");
}

TEST_F(Accumulation, MistakesAreNamed) {
  EXPECT_ERROR(
      (GradientAccumulation({}, {.micro_batches = 0})),
      c10::ValueError,
      "micro_batches must be >= 1, got 0");
  GradientAccumulationOptions options;
  options.sum_over_ranks = [](const at::Tensor& count) { return count; };
  EXPECT_ERROR(
      GradientAccumulation({}, options),
      c10::ValueError,
      "sum_over_ranks needs expected_count");
  EXPECT_ERROR(
      (GradientAccumulation({}, {.averaged_over = 0})),
      c10::ValueError,
      "averaged_over must be >= 1, got 0");
  GradientAccumulation window(model_->parameters());
  const auto loss = torch::ones({});
  EXPECT_ERROR(
      window.weigh(loss, -1), c10::ValueError, "count must be >= 0, got -1");
  EXPECT_ERROR(
      window.weigh_mean(loss, 0), c10::ValueError, "count must be > 0");
  EXPECT_ERROR(window.finish(), c10::Error, "no sample was counted in 0");
  window.weigh(loss, 1);
  EXPECT_ERROR(
      window.weigh(loss, 1), c10::Error, "already has its 1 micro-batches");
}

} // namespace
} // namespace ampkit
