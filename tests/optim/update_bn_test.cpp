// Values are compared with PyTorch's in tests/oracle/test_swa.py.

#include <ampkit/optim/update_bn.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

class UpdateBnTest : public ::testing::Test {
 protected:
  torch::nn::BatchNorm1d norm_{torch::nn::BatchNormOptions(3).momentum(0.25)};
  torch::nn::Dropout dropout_;
  torch::nn::Sequential module_{norm_, dropout_};

  void SetUp() override { torch::manual_seed(1); }
};

TEST_F(UpdateBnTest, StatisticsAreTheMeanOverTheBatches) {
  const auto first = torch::randn({64, 3});
  const auto second = torch::randn({64, 3}) + 2;
  module_->forward(torch::randn({8, 3}) * 100);
  update_bn(*module_, [&] {
    EXPECT_FALSE(module_->forward(first).requires_grad());
    module_->forward(second);
  });
  const auto mean = (first.mean(0) + second.mean(0)) / 2;
  EXPECT_TRUE(norm_->running_mean.allclose(mean, 1e-5, 1e-6));
  EXPECT_EQ(norm_->num_batches_tracked.item<int64_t>(), 2);
}

TEST_F(UpdateBnTest, MomentumAndModesAreAsBefore) {
  module_->eval();
  dropout_->train();
  update_bn(*module_, [&] {
    EXPECT_TRUE(norm_->is_training());
    module_->forward(torch::randn({8, 3}));
  });
  EXPECT_EQ(norm_->options.momentum(), 0.25);
  EXPECT_FALSE(module_->is_training());
  EXPECT_FALSE(norm_->is_training());
  EXPECT_TRUE(dropout_->is_training());
}

TEST_F(UpdateBnTest, MomentumAndModesAreAsBeforeAfterAnExceptionToo) {
  module_->eval();
  const auto fail = [] { throw std::runtime_error("no more data"); };
  EXPECT_THROW(update_bn(*module_, fail), std::runtime_error);
  EXPECT_EQ(norm_->options.momentum(), 0.25);
  EXPECT_FALSE(norm_->is_training());
}

TEST_F(UpdateBnTest, WithoutBatchNormsThePassDoesNotRun) {
  torch::nn::Sequential plain(torch::nn::Linear(3, 3));
  update_bn(*plain, [] { FAIL() << "it ran"; });
}

TEST_F(UpdateBnTest, APassWithoutBatchesIsAnError) {
  EXPECT_ERROR(update_bn(*module_, [] {}), c10::Error, "0 batches");
}

struct OwnNormImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x - mean; }
  at::Tensor mean = register_buffer("running_mean", torch::ones({3}));
};
TORCH_MODULE(OwnNorm);

TEST_F(UpdateBnTest, NormsThatItDoesNotKnowAreRefusedUnchanged) {
  module_->forward(torch::randn({8, 3}));
  const auto before = norm_->running_mean.clone();
  module_->push_back(OwnNorm());
  EXPECT_ERROR(
      update_bn(*module_, [] { FAIL() << "it ran"; }),
      c10::Error,
      "OwnNorm",
      "'running_mean'");
  EXPECT_TRUE(norm_->running_mean.equal(before));
  torch::nn::Sequential instance(torch::nn::InstanceNorm1d(
      torch::nn::InstanceNorm1dOptions(3).track_running_stats(true)));
  update_bn(*instance, [] { FAIL() << "it ran"; });
}

} // namespace
} // namespace ampkit::optim
