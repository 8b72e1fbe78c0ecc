// Values are compared with PyTorch's in tests/oracle/test_schedules.py.

#include <cmath>

#include <ampkit/optim/reduce_lr_on_plateau.h>
#include <ampkit/optim/schedule.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

using Options = ReduceLROnPlateauOptions;

class ReduceLROnPlateauTest : public ::testing::Test {
 protected:
  std::vector<at::Tensor> weights_{
      torch::ones({1}).requires_grad_(), torch::ones({1}).requires_grad_()};
  SGD sgd_{{
      ParamGroup{{weights_[0]}, SGDOptions{.lr = 1.0}},
      ParamGroup{{weights_[1]}, SGDOptions{.lr = 0.5}},
  }};

  double lr(size_t group = 0) {
    return sgd_.param_groups()[group].options().get_lr();
  }
};

TEST_F(ReduceLROnPlateauTest, LowersTheRateAfterPatienceAndNotBelowTheLowest) {
  ReduceLROnPlateau schedule(
      sgd_, {.factor = 0.5, .patience = 1, .min_lr = {0.0, 0.375}});
  schedule.step(3.0);
  schedule.step(4.0);
  EXPECT_EQ(lr(0), 1.0);
  schedule.step(4.0);
  EXPECT_EQ(lr(0), 0.5);
  EXPECT_EQ(lr(1), 0.375);
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.5, 0.375}));
  EXPECT_EQ(schedule.best(), 3.0);
}

TEST_F(ReduceLROnPlateauTest, NanIsNeverBetter) {
  ReduceLROnPlateau schedule(sgd_, {.factor = 0.5, .patience = 0});
  schedule.step(3.0);
  schedule.step(std::nan(""));
  EXPECT_EQ(lr(), 0.5);
  EXPECT_EQ(schedule.best(), 3.0);
}

TEST_F(ReduceLROnPlateauTest, SkippedStepsDontAdvance) {
  ReduceLROnPlateau schedule(sgd_, {.factor = 0.5, .patience = 0});
  EXPECT_TRUE(schedule.step(3.0, StepResult::of(true)));
  EXPECT_FALSE(schedule.step(4.0, StepResult::of(false)));
  EXPECT_EQ(lr(), 1.0);
  EXPECT_EQ(schedule.steps(), 1);
  EXPECT_TRUE(schedule.step(4.0, StepResult::of(true)));
  EXPECT_EQ(lr(), 0.5);
}

TEST_F(ReduceLROnPlateauTest, ResumesAtAnyStep) {
  const std::vector<double> metrics{3, 2, 2, 4, 4, 4, 1, 2, 2, 2, 2};
  const Options options{.factor = 0.7, .patience = 1, .cooldown = 1};
  for (size_t before = 0; before <= metrics.size(); ++before) {
    SGD through({torch::ones({1})}, {.lr = 0.3});
    ReduceLROnPlateau whole(through, options);
    SGD first({torch::ones({1})}, {.lr = 0.3});
    ReduceLROnPlateau interrupted(first, options);
    for (size_t step = 0; step < before; ++step) {
      whole.step(metrics[step]);
      interrupted.step(metrics[step]);
    }
    SGD second({torch::ones({1})}, {.lr = 77});
    ReduceLROnPlateau resumed(second, options);
    resumed.load_state_dict(interrupted.state_dict());
    for (size_t step = before; step < metrics.size(); ++step) {
      EXPECT_EQ(second.options().lr, through.options().lr);
      whole.step(metrics[step]);
      resumed.step(metrics[step]);
    }
    EXPECT_LT(through.options().lr, 0.2);
    EXPECT_EQ(resumed.last_lr(), whole.last_lr());
    EXPECT_EQ(resumed.best(), whole.best());
    EXPECT_EQ(resumed.steps(), whole.steps());
  }
}

TEST_F(ReduceLROnPlateauTest, StatesThatDontFitAreRefusedUnchanged) {
  ReduceLROnPlateau schedule(sgd_, {.patience = 2});
  schedule.step(3.0);
  SGD other({torch::ones({1})}, {.lr = 0.125});
  EXPECT_ERROR(
      schedule.load_state_dict(StepLR(other, {.step_size = 1}).state_dict()),
      c10::Error,
      "ReduceLROnPlateau::load_state_dict: the state is of a StepLR");
  EXPECT_ERROR(
      schedule.load_state_dict(ReduceLROnPlateau(other).state_dict()),
      c10::Error,
      "patience = integer 10",
      "patience = integer 2");
  SGD three(
      {ParamGroup{{torch::ones({1})}, SGDOptions{}},
       ParamGroup{{torch::ones({1})}, SGDOptions{}}});
  auto state = ReduceLROnPlateau(three, {.patience = 2}).state_dict();
  state.set("groups", 3);
  EXPECT_ERROR(
      schedule.load_state_dict(state), c10::Error, "3 groups, the optimizer 2");
  EXPECT_EQ(lr(), 1.0);
  EXPECT_EQ(schedule.best(), 3.0);
  EXPECT_EQ(schedule.steps(), 1);
}

TEST_F(ReduceLROnPlateauTest, OptionsOutOfRangeNameTheField) {
  const auto refused = [this](const Options& options, const char* field) {
    EXPECT_ERROR(ReduceLROnPlateau(sgd_, options), c10::ValueError, field);
  };
  refused({.factor = 1.0}, "factor must be in (0, 1), got 1");
  refused({.patience = -1}, "patience");
  refused({.threshold = -1}, "threshold");
  refused({.cooldown = -1}, "cooldown");
  refused({.min_lr = {1, 2, 3}}, "each of the 2 parameter groups, got 3");
  refused({.min_lr = {}}, "got 0");
  refused({.min_lr = {-1}}, "min_lr must be >= 0");
  refused({.eps = -1}, "eps");
}

TEST_F(ReduceLROnPlateauTest, GroupsAddedLaterAreAnError) {
  ReduceLROnPlateau schedule(sgd_);
  sgd_.add_param_group(ParamGroup{{torch::ones({1})}, SGDOptions{}});
  EXPECT_ERROR(schedule.step(1.0), c10::Error, "3 parameter groups, it had 2");
  EXPECT_EQ(schedule.steps(), 0);
}

} // namespace
} // namespace ampkit::optim
