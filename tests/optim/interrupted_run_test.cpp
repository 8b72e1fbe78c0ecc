// A run that is interrupted and goes on in new objects equals one that is not,
// bit for bit, with every optimizer and every schedule.

#include <functional>

#include <ampkit/optim/schedule.h>
#include <torch/torch.h>

#include "optim/all_optimizers.h"
#include "support/errors.h"

namespace ampkit::optim {
namespace {

/// A schedule of any kind; ReduceLROnPlateau is not an LRScheduler.
struct Schedule {
  std::function<void(int step)> advance;
  std::function<io::StateDict()> save;
  std::function<void(const io::StateDict&)> load;
};

struct ScheduleCase {
  std::string name;
  std::function<Schedule(torch::optim::Optimizer&)> make;
};

std::ostream& operator<<(std::ostream& out, const ScheduleCase& tested) {
  return out << tested.name;
}

Schedule wrap(std::shared_ptr<LRScheduler> schedule) {
  return {
      [schedule](int) { schedule->step(); },
      [schedule] { return schedule->state_dict(); },
      [schedule](const auto& state) { schedule->load_state_dict(state); }};
}

template <class Kind, class Options>
ScheduleCase make_case(const char* name, const Options& options) {
  return {name, [options](torch::optim::Optimizer& optimizer) {
            return wrap(std::make_shared<Kind>(optimizer, options));
          }};
}

ScheduleCase plateau() {
  return {"ReduceLROnPlateau", [](torch::optim::Optimizer& optimizer) {
            const auto schedule = std::make_shared<ReduceLROnPlateau>(
                optimizer, ReduceLROnPlateauOptions{.patience = 1});
            return Schedule{
                [schedule](int step) {
                  schedule->step(step < 4 ? 9.0 - step : 7.0);
                },
                [schedule] { return schedule->state_dict(); },
                [schedule](const auto& state) {
                  schedule->load_state_dict(state);
                }};
          }};
}

ScheduleCase sequence() {
  return {"SequentialLR", [](torch::optim::Optimizer& optimizer) {
            return wrap(std::make_shared<SequentialLR>(
                optimizer,
                std::vector<ScheduleOptions>{
                    LinearLROptions{.total_iters = 4},
                    CosineAnnealingLROptions{.T_max = 10}},
                std::vector<int64_t>{4}));
          }};
}

ScheduleCase chain() {
  return {"ChainedScheduler", [](torch::optim::Optimizer& optimizer) {
            return wrap(std::make_shared<ChainedScheduler>(
                optimizer,
                std::vector<ScheduleOptions>{
                    LinearLROptions{.total_iters = 4},
                    StepLROptions{.step_size = 3, .gamma = 0.5}}));
          }};
}

std::vector<ScheduleCase> all_schedules() {
  return {
      make_case<ConstantLR>("ConstantLR", ConstantLROptions{}),
      make_case<LinearLR>("LinearLR", LinearLROptions{.total_iters = 8}),
      make_case<CosineAnnealingLR>(
          "CosineAnnealingLR", CosineAnnealingLROptions{.T_max = 12}),
      make_case<StepLR>("StepLR", StepLROptions{.step_size = 3, .gamma = 0.5}),
      make_case<MultiStepLR>(
          "MultiStepLR", MultiStepLROptions{.milestones = {2, 7}}),
      make_case<CosineAnnealingWarmRestarts>(
          "CosineAnnealingWarmRestarts",
          CosineAnnealingWarmRestartsOptions{.T_0 = 3, .T_mult = 2}),
      make_case<PolynomialLR>(
          "PolynomialLR", PolynomialLROptions{.total_iters = 12}),
      make_case<WarmupPolynomialLR>(
          "WarmupPolynomialLR",
          WarmupPolynomialLROptions{
              .warmup_steps = 3, .total_steps = 12, .lr_init = 0.01}),
      make_case<WarmupStableDecayLR>(
          "WarmupStableDecayLR",
          WarmupStableDecayLROptions{
              .warmup_steps = 3, .stable_steps = 3, .decay_steps = 5}),
      make_case<SWALR>(
          "SWALR", SWALROptions{.swa_lr = {0.001}, .anneal_epochs = 6}),
      make_case<WarmupCosineLR>(
          "WarmupCosineLR",
          WarmupCosineLROptions{.warmup_steps = 3, .total_steps = 12}),
      make_case<OneCycleLR>(
          "OneCycleLR",
          OneCycleLROptions{
              .max_lr = {0.02}, .total_steps = 14, .cycle_momentum = false}),
      plateau(),
      sequence(),
      chain()};
}

class InterruptedRun
    : public ::testing::TestWithParam<std::tuple<OptimizerCase, ScheduleCase>> {
 protected:
  struct Run {
    OptimizerWorld world;
    Schedule schedule;

    explicit Run(const std::tuple<OptimizerCase, ScheduleCase>& tested)
        : world(std::get<0>(tested), at::kBFloat16),
          schedule(std::get<1>(tested).make(*world.optimizer)) {}

    void steps(int first, int end) {
      for (int step = first; step < end; ++step) {
        world.step(step);
        schedule.advance(step);
      }
    }
  };
};

TEST_P(InterruptedRun, EqualsTheUninterruptedOneBitForBit) {
  Run whole(GetParam());
  whole.steps(0, 12);
  Run first(GetParam());
  first.steps(0, 5);
  Run second(GetParam());
  second.steps(90, 91); // nothing of it may remain
  second.world.take_over(first.world);
  second.schedule.load(first.schedule.save());
  second.steps(5, 12);
  EXPECT_TRUE(same_bits(second.world.weights(), whole.world.weights()));
  EXPECT_TRUE(same_bits(second.world.state(), whole.world.state()));
  EXPECT_TRUE(same_bits(second.schedule.save(), whole.schedule.save()));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    InterruptedRun,
    ::testing::Combine(
        ::testing::ValuesIn(all_optimizers()),
        ::testing::ValuesIn(all_schedules())),
    [](const auto& of) {
      return std::get<0>(of.param).name + "Under" + std::get<1>(of.param).name;
    });

} // namespace
} // namespace ampkit::optim
