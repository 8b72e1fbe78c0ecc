// Values are compared with PyTorch's in tests/oracle/test_schedules.py.

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/schedule.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

class ScheduleTest : public ::testing::Test {
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

TEST_F(ScheduleTest, SkippedStepsDontAdvance) {
  LinearLR schedule(sgd_, {.start_factor = 0.5, .total_iters = 4});
  LinearLR* shorter = nullptr;
  SGD other({torch::ones({1})}, {.lr = 1.0});
  LinearLR reference(other, {.start_factor = 0.5, .total_iters = 4});
  shorter = &reference;
  for (const bool stepped : {true, true, false, true}) {
    EXPECT_EQ(schedule.step(StepResult::of(stepped)), stepped);
    if (stepped) {
      shorter->step();
    }
    EXPECT_EQ(schedule.last_lr()[0], shorter->last_lr()[0]);
  }
  EXPECT_EQ(schedule.steps(), 3);
}

TEST_F(ScheduleTest, StepDoesNotDecayOneStepLate) {
  StepLR schedule(sgd_, {.step_size = 2, .gamma = 0.5});
  std::vector<double> rates;
  for (int step = 0; step < 6; ++step) {
    rates.push_back(lr());
    schedule.step();
  }
  EXPECT_EQ(rates, (std::vector<double>{1, 1, 0.5, 0.5, 0.25, 0.25}));
}

TEST_F(ScheduleTest, MilestonesListedTwiceCountTwice) {
  MultiStepLR schedule(sgd_, {.milestones = {2, 1, 2}, .gamma = 0.5});
  schedule.step();
  EXPECT_EQ(lr(), 0.5);
  schedule.step();
  EXPECT_EQ(lr(), 0.125);
}

TEST_F(ScheduleTest, RestartsSoFarApartThatTheyOverflowNeverCome) {
  CosineAnnealingWarmRestarts schedule(
      sgd_, {.T_0 = 2, .T_mult = std::numeric_limits<int64_t>::max()});
  for (int step = 0; step < 5; ++step) {
    schedule.step();
  }
  EXPECT_DOUBLE_EQ(lr(), 1.0);
}

TEST_F(ScheduleTest, SwaStartsFromThePresentRate) {
  sgd_.param_groups()[0].options().set_lr(0.25);
  SWALR schedule(
      sgd_, {.swa_lr = {0.75, 0.5}, .anneal_epochs = 4, .cosine = false});
  EXPECT_EQ(lr(0), 0.25);
  schedule.step();
  schedule.step();
  EXPECT_DOUBLE_EQ(lr(0), 0.5);
  EXPECT_DOUBLE_EQ(lr(1), 0.5);
  for (int step = 0; step < 9; ++step) {
    schedule.step();
  }
  EXPECT_EQ(lr(0), 0.75);
}

TEST_F(ScheduleTest, WorksOnStockOptimizers) {
  torch::optim::Adam adam(
      {torch::ones({1}).requires_grad_()}, torch::optim::AdamOptions(2.0));
  ConstantLR schedule(adam, {.factor = 0.5, .total_iters = 2});
  EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 1.0);
  schedule.step();
  schedule.step();
  EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 2.0);
  OneCycleLR cycle(adam, {.max_lr = {1.0}, .total_steps = 10});
  const auto& options = dynamic_cast<torch::optim::AdamOptions&>(
      adam.param_groups()[0].options());
  EXPECT_DOUBLE_EQ(std::get<0>(options.betas()), 0.95);
}

TEST_F(ScheduleTest, EachGroupKeepsItsRatio) {
  WarmupCosineLR schedule(sgd_, {.warmup_steps = 3, .total_steps = 12});
  for (int step = 0; step < 12; ++step) {
    EXPECT_DOUBLE_EQ(lr(0), 2 * lr(1));
    schedule.step();
  }
}

TEST_F(ScheduleTest, WarmupCosineStaysAtTheEnd) {
  WarmupCosineLR schedule(
      sgd_, {.warmup_steps = 2, .total_steps = 6, .eta_min = 0.125});
  for (int step = 0; step < 6; ++step) {
    schedule.step();
  }
  EXPECT_NEAR(lr(), 0.125, 1e-15);
  const double end = lr();
  for (int step = 0; step < 20; ++step) {
    schedule.step();
    EXPECT_EQ(lr(), end);
  }
}

/// Resuming `Schedule` after `before` of 9 steps equals going through.
template <class Schedule, class Options>
void expect_resumes(const Options& options) {
  const auto weight = torch::ones({1}).requires_grad_();
  for (int before = 0; before <= 9; ++before) {
    SGD through({weight}, {.lr = 0.3, .momentum = 0.5});
    Schedule whole(through, options);
    SGD first({weight}, {.lr = 0.3, .momentum = 0.5});
    Schedule interrupted(first, options);
    for (int step = 0; step < before; ++step) {
      whole.step();
      interrupted.step();
    }
    SGD second({weight}, {.lr = 77});
    second.load_state_dict(first.state_dict());
    Schedule resumed(second, options);
    resumed.load_state_dict(interrupted.state_dict());
    EXPECT_EQ(resumed.steps(), before);
    for (int step = before; step < 9; ++step) {
      EXPECT_EQ(second.options().lr, through.options().lr) << step;
      EXPECT_EQ(second.options().momentum, through.options().momentum);
      whole.step();
      resumed.step();
    }
    EXPECT_EQ(resumed.last_lr(), whole.last_lr());
  }
}

TEST(ScheduleStateTest, ResumesAtAnyStep) {
  expect_resumes<ConstantLR>(ConstantLROptions{});
  expect_resumes<LinearLR>(LinearLROptions{});
  expect_resumes<CosineAnnealingLR>(CosineAnnealingLROptions{.T_max = 4});
  expect_resumes<WarmupCosineLR>(
      WarmupCosineLROptions{.warmup_steps = 3, .total_steps = 8});
  expect_resumes<OneCycleLR>(
      OneCycleLROptions{.max_lr = {1.0}, .total_steps = 9});
  expect_resumes<StepLR>(StepLROptions{.step_size = 2});
  expect_resumes<MultiStepLR>(MultiStepLROptions{.milestones = {3, 5}});
  expect_resumes<CosineAnnealingWarmRestarts>(
      CosineAnnealingWarmRestartsOptions{.T_0 = 2, .T_mult = 2});
  expect_resumes<PolynomialLR>(PolynomialLROptions{.power = 1.7});
  expect_resumes<WarmupPolynomialLR>(
      WarmupPolynomialLROptions{.warmup_steps = 3, .total_steps = 7});
  expect_resumes<WarmupStableDecayLR>(WarmupStableDecayLROptions{
      .warmup_steps = 2, .stable_steps = 2, .decay_steps = 4});
  expect_resumes<SWALR>(SWALROptions{.swa_lr = {0.05}, .anneal_epochs = 6});
}

TEST_F(ScheduleTest, StatesThatDontFitAreRefusedUnchanged) {
  LinearLR schedule(sgd_, {.total_iters = 4});
  schedule.step();
  const double before = lr();
  SGD other({torch::ones({1})}, {.lr = 1.0});
  EXPECT_ERROR(
      schedule.load_state_dict(ConstantLR(sgd_).state_dict()),
      c10::Error,
      "of a ConstantLR");
  sgd_.param_groups()[0].options().set_lr(before);
  EXPECT_ERROR(
      schedule.load_state_dict(
          LinearLR(other, {.total_iters = 5}).state_dict()),
      c10::Error,
      "total_iters = integer 5",
      "total_iters = integer 4");
  EXPECT_ERROR(
      schedule.load_state_dict(
          LinearLR(other, {.total_iters = 4}).state_dict()),
      c10::Error,
      "1 groups, the optimizer 2");
  EXPECT_EQ(lr(), before);
  EXPECT_EQ(schedule.steps(), 1);
}

TEST_F(ScheduleTest, OptionsOutOfRangeNameTheField) {
  EXPECT_ERROR(
      ConstantLR(sgd_, {.factor = 1.5}), c10::ValueError, "factor", "1.5");
  EXPECT_ERROR(
      LinearLR(sgd_, {.start_factor = 0}), c10::ValueError, "start_factor");
  EXPECT_ERROR(
      LinearLR(sgd_, {.end_factor = -1}), c10::ValueError, "end_factor");
  EXPECT_ERROR(CosineAnnealingLR(sgd_, {}), c10::ValueError, "T_max");
  EXPECT_ERROR(
      WarmupCosineLR(sgd_, {.warmup_steps = 5, .total_steps = 5}),
      c10::ValueError,
      "total_steps must be >= 6");
  EXPECT_ERROR(StepLR(sgd_, {}), c10::ValueError, "step_size must be >= 1");
  EXPECT_ERROR(
      StepLR(sgd_, {.step_size = 1, .gamma = -1}), c10::ValueError, "gamma");
  EXPECT_ERROR(
      MultiStepLR(sgd_, {.milestones = {3, -1}}),
      c10::ValueError,
      "milestones must be >= 0, got -1");
  EXPECT_ERROR(CosineAnnealingWarmRestarts(sgd_, {}), c10::ValueError, "T_0");
  EXPECT_ERROR(
      CosineAnnealingWarmRestarts(sgd_, {.T_0 = 1, .T_mult = 0}),
      c10::ValueError,
      "T_mult");
  EXPECT_ERROR(
      PolynomialLR(sgd_, {.total_iters = -1}), c10::ValueError, "total_iters");
  EXPECT_ERROR(PolynomialLR(sgd_, {.power = -1}), c10::ValueError, "power");
  EXPECT_EQ(lr(), 1.0) << "nothing was set";
}

TEST_F(ScheduleTest, OptionsOfTransformersSchedulesAreChecked) {
  EXPECT_ERROR(
      WarmupPolynomialLR(sgd_, {.warmup_steps = 5, .total_steps = 5}),
      c10::ValueError,
      "total_steps must be >= 6");
  EXPECT_ERROR(
      WarmupPolynomialLR(
          sgd_, {.total_steps = 5, .lr_end = 0.5, .lr_init = 0.5}),
      c10::ValueError,
      "lr_end must be smaller than lr_init 0.5");
  EXPECT_ERROR(
      WarmupStableDecayLR(sgd_, {.stable_steps = -1}),
      c10::ValueError,
      "stable_steps");
  EXPECT_ERROR(
      WarmupStableDecayLR(sgd_, {.min_lr_ratio = 1.5}),
      c10::ValueError,
      "min_lr_ratio must be in [0, 1], got 1.5");
  EXPECT_EQ(lr(), 1.0) << "nothing was set";
}

TEST_F(ScheduleTest, SwaChecksItsOptions) {
  EXPECT_ERROR(SWALR(sgd_, {}), c10::ValueError, "swa_lr", "got 0");
  EXPECT_ERROR(
      SWALR(sgd_, {.swa_lr = {1, 2, 3}}), c10::ValueError, "each of the 2");
  EXPECT_ERROR(SWALR(sgd_, {.swa_lr = {-1}}), c10::ValueError, "swa_lr");
  EXPECT_ERROR(
      SWALR(sgd_, {.swa_lr = {1}, .anneal_epochs = -1}),
      c10::ValueError,
      "anneal_epochs");
  EXPECT_EQ(lr(), 1.0) << "nothing was set";
}

TEST_F(ScheduleTest, OneCycleChecksItsOptions) {
  EXPECT_ERROR(
      OneCycleLR(sgd_, {.max_lr = {1, 2, 3}, .total_steps = 9}),
      c10::ValueError,
      "max_lr",
      "got 3");
  EXPECT_ERROR(
      OneCycleLR(sgd_, {.max_lr = {-1}, .total_steps = 9}),
      c10::ValueError,
      "max_lr");
  EXPECT_ERROR(
      OneCycleLR(sgd_, {.max_lr = {1}}), c10::ValueError, "total_steps");
  EXPECT_ERROR(
      OneCycleLR(sgd_, {.max_lr = {1}, .total_steps = 4, .pct_start = 0.25}),
      c10::ValueError,
      "pct_start");
  torch::optim::Adagrad adagrad({torch::ones({1}).requires_grad_()});
  EXPECT_ERROR(
      OneCycleLR(adagrad, {.max_lr = {1}, .total_steps = 9}),
      c10::ValueError,
      "cycle_momentum");
}

TEST_F(ScheduleTest, GroupsAddedLaterAreAnError) {
  LinearLR schedule(sgd_);
  sgd_.add_param_group(ParamGroup{{torch::ones({1})}, SGDOptions{}});
  EXPECT_ERROR(schedule.step(), c10::Error, "3 parameter groups, it had 2");
}

} // namespace
} // namespace ampkit::optim
