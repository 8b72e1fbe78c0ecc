// Values are compared with PyTorch's in tests/oracle/test_schedules.py.

#include <ampkit/optim/schedule.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

class ScheduleChainTest : public ::testing::Test {
 protected:
  static SGD make_sgd(double lr) {
    return SGD({torch::ones({1}).requires_grad_()}, {.lr = lr});
  }

  SGD sgd_ = make_sgd(1.0);

  double lr() { return sgd_.options().lr; }
};

std::vector<ScheduleOptions> linear_and_steps() {
  return {
      LinearLROptions{.start_factor = 0.5, .total_iters = 2},
      StepLROptions{.step_size = 3, .gamma = 0.5}};
}

TEST_F(ScheduleChainTest, FactorsOfAChainMultiply) {
  ChainedScheduler schedule(sgd_, linear_and_steps());
  std::vector<double> rates;
  for (int step = 0; step < 7; ++step) {
    rates.push_back(lr());
    schedule.step();
  }
  EXPECT_EQ(rates, (std::vector<double>{0.5, 0.75, 1, 0.5, 0.5, 0.5, 0.25}));
}

TEST_F(ScheduleChainTest, SwaFollowsFromThePresentRate) {
  SequentialLR schedule(
      sgd_,
      {StepLROptions{.step_size = 1, .gamma = 0.5},
       SWALROptions{.swa_lr = {0.75}, .anneal_epochs = 2, .cosine = false}},
      {3});
  for (int step = 0; step < 3; ++step) {
    schedule.step();
  }
  EXPECT_EQ(lr(), 0.25) << "the rate of the step before, not the base rate";
  schedule.step();
  EXPECT_EQ(lr(), 0.5);
  schedule.step();
  EXPECT_EQ(lr(), 0.75);
}

TEST_F(ScheduleChainTest, SkippedStepsDontAdvance) {
  ChainedScheduler chain(sgd_, linear_and_steps());
  EXPECT_FALSE(chain.step(StepResult::of(false)));
  EXPECT_EQ(lr(), 0.5);
  EXPECT_TRUE(chain.step(StepResult::of(true)));
  EXPECT_EQ(lr(), 0.75);
}

/// Resuming what `make` makes after any of 9 steps equals going through.
template <class Make>
void expect_resumes(const SGD& like, const Make& make) {
  for (int before = 0; before <= 9; ++before) {
    SGD through({torch::ones({1})}, {.lr = like.options().lr});
    auto whole = make(through);
    SGD first({torch::ones({1})}, {.lr = like.options().lr});
    auto interrupted = make(first);
    for (int step = 0; step < before; ++step) {
      whole->step();
      interrupted->step();
    }
    SGD second({torch::ones({1})}, {.lr = 77});
    auto resumed = make(second);
    resumed->load_state_dict(interrupted->state_dict());
    EXPECT_EQ(resumed->steps(), before);
    for (int step = before; step < 9; ++step) {
      EXPECT_EQ(second.options().lr, through.options().lr) << step;
      whole->step();
      resumed->step();
    }
    EXPECT_EQ(resumed->last_lr(), whole->last_lr());
  }
}

TEST_F(ScheduleChainTest, ResumesAtAnyStep) {
  expect_resumes(make_sgd(0.3), [](SGD& sgd) {
    return std::make_unique<ChainedScheduler>(sgd, linear_and_steps());
  });
  expect_resumes(make_sgd(0.3), [](SGD& sgd) {
    auto parts = linear_and_steps();
    parts.emplace_back(SWALROptions{.swa_lr = {0.05}, .anneal_epochs = 3});
    return std::make_unique<SequentialLR>(
        sgd, parts, std::vector<int64_t>{2, 5});
  });
}

TEST_F(ScheduleChainTest, StatesThatDontFitAreRefusedUnchanged) {
  ChainedScheduler chain(sgd_, linear_and_steps());
  chain.step();
  auto other = make_sgd(1.0);
  EXPECT_ERROR(
      chain.load_state_dict(
          SequentialLR(other, linear_and_steps(), {4}).state_dict()),
      c10::Error,
      "ChainedScheduler::load_state_dict: the state is of a SequentialLR");
  auto parts = linear_and_steps();
  parts[1] = StepLROptions{.step_size = 4, .gamma = 0.5};
  EXPECT_ERROR(
      chain.load_state_dict(ChainedScheduler(other, parts).state_dict()),
      c10::Error,
      "1.step_size = integer 4",
      "1.step_size = integer 3");
  io::StateDict missing;
  for (const auto& state = chain.state_dict();
       const auto& [name, value] : state.entries()) {
    if (name != "last_lr.0") {
      missing.set(name, value);
    }
  }
  EXPECT_ERROR(chain.load_state_dict(missing), c10::Error, "last_lr.0");
  EXPECT_EQ(lr(), 0.75);
  EXPECT_EQ(chain.steps(), 1);
}

TEST_F(ScheduleChainTest, ArgumentsAreChecked) {
  EXPECT_ERROR(
      SequentialLR(sgd_, {LinearLROptions{}}, {3}),
      c10::ValueError,
      "one milestone fewer");
  EXPECT_ERROR(
      SequentialLR(
          sgd_,
          {LinearLROptions{}, LinearLROptions{}, LinearLROptions{}},
          {3, 3}),
      c10::ValueError,
      "increase");
  EXPECT_ERROR(
      ChainedScheduler(sgd_, {}), c10::ValueError, "at least one schedule");
  EXPECT_ERROR(
      ChainedScheduler(sgd_, {LinearLROptions{}, StepLROptions{}}),
      c10::ValueError,
      "step_size");
  EXPECT_EQ(lr(), 1.0) << "nothing was set";
}

} // namespace
} // namespace ampkit::optim
