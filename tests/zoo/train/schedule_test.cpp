#include "train/schedule.h"

#include <cmath>
#include <functional>
#include <numbers>

#include <torch/torch.h>

#include "support/errors.h"
#include "zoo/train/changed_key.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

constexpr double kLr = 0.5;
constexpr int64_t kTotal = 20;

/// A schedule over 20 steps, the first 4 of them warm-up, from 0.5 to 0.05.
class ScheduleWorld {
 public:
  explicit ScheduleWorld(const ScheduleConfig& config)
      : schedule(config, optimizer, kTotal) {}

  static ScheduleConfig config(const std::string& name) {
    ScheduleConfig result;
    result.name = name;
    result.warmup = 0.2;
    result.final_factor = 0.1;
    return result;
  }

  double rate() const {
    return optimizer.param_groups().front().options().get_lr();
  }

  std::vector<double> rates() {
    std::vector<double> result;
    for (int64_t step = 0; step < kTotal; ++step) {
      result.push_back(rate());
      schedule.step(StepResult::of(true));
    }
    return result;
  }

  torch::Tensor weight = torch::ones({1}).requires_grad_();
  torch::optim::SGD optimizer{
      {weight}, torch::optim::SGDOptions(kLr).momentum(0.9)};
  Schedule schedule;
};

/// `share(t)`: of the highest rate, `t` steps after the warm-up.
void expect_course(
    const ScheduleConfig& config, const std::function<double(double)>& share) {
  const auto rates = ScheduleWorld(config).rates();
  for (int64_t step = 0; step < kTotal; ++step) {
    const auto t = static_cast<double>(step);
    const double expected = step < 4 ? 1e-3 + (1 - 1e-3) * t / 4 : share(t - 4);
    EXPECT_NEAR(rates.at(static_cast<size_t>(step)), kLr * expected, 1e-12)
        << config.name << " at " << step;
  }
}

double half_cosine(double part) {
  return 0.1 + 0.9 * (1 + std::cos(std::numbers::pi * part)) / 2;
}

TEST(ScheduleTest, CoursesAreThoseOfTheirFormulas) {
  const auto config = &ScheduleWorld::config;
  expect_course(config("constant"), [](double) { return 1.0; });
  expect_course(config("linear"), [](double t) { return 1 - 0.9 * t / 16; });
  expect_course(config("cosine"), [](double t) { return half_cosine(t / 16); });

  auto steps = config("step");
  steps.step_size = 0.25; // 5 steps
  steps.gamma = 0.5;
  expect_course(
      steps, [](double t) { return std::pow(0.5, std::floor(t / 5)); });

  auto restarts = config("cosine-restarts");
  restarts.period = 0.2; // 4 steps, then 8
  restarts.period_factor = 2;
  expect_course(restarts, [](double t) {
    return t < 4 ? half_cosine(t / 4)
                 : half_cosine((t < 12 ? t - 4 : t - 12) / (t < 12 ? 8 : 16));
  });

  auto power = config("polynomial");
  power.power = 2;
  expect_course(
      power, [](double t) { return 0.1 + 0.9 * std::pow(1 - t / 16, 2); });

  auto late = config("warmup-stable-decay");
  late.decay = 0.4; // 8 steps
  late.decay_shape = "linear";
  expect_course(
      late, [](double t) { return t < 8 ? 1 : 1 - 0.9 * (t - 8) / 8; });
}

// Milestones are places in the whole run, whatever the warm-up.
TEST(ScheduleTest, MilestonesCountFromTheFirstStep) {
  auto config = ScheduleWorld::config("multi-step");
  config.milestones = {0.5, 0.8};
  expect_course(config, [](double t) {
    const double step = t + 4;
    return step < 10 ? 1.0 : step < 16 ? 0.1 : 0.01;
  });
  config.milestones = {0.2};
  EXPECT_ERROR(
      ScheduleWorld{config},
      ConfigError,
      "schedule.milestones: must lie after schedule.warmup = 0.2, got 0.2");
}

TEST(ScheduleTest, OneCycleEndsAtTheFinalFactor) {
  const auto rates = ScheduleWorld(ScheduleWorld::config("one-cycle")).rates();
  EXPECT_NEAR(*std::ranges::max_element(rates), kLr, 1e-12);
  EXPECT_NEAR(rates.back(), kLr * 0.1, 1e-12);
}

// The rise goes on where a fall comes early, and no fall goes below the lowest.
TEST(ScheduleTest, PlateauFallsAfterEvaluationsWithoutABetterLoss) {
  auto config = ScheduleWorld::config("plateau");
  config.gamma = 0.25;
  config.patience = 1;
  ScheduleWorld world(config);
  EXPECT_DOUBLE_EQ(world.rate(), kLr * 1e-3);
  for (int i = 0; i < 6; ++i) {
    world.schedule.step(StepResult::of(true));
  }
  EXPECT_NEAR(world.rate(), kLr, 1e-12);
  for (const double loss : {2.0, 1.0, 1.0}) {
    world.schedule.evaluated(loss);
    EXPECT_NEAR(world.rate(), kLr, 1e-12);
  }
  world.schedule.evaluated(1.0);
  EXPECT_NEAR(world.rate(), kLr * 0.25, 1e-12);
  world.schedule.step(StepResult::of(true));
  EXPECT_NEAR(world.rate(), kLr * 0.25, 1e-12);
  for (int i = 0; i < 4; ++i) {
    world.schedule.evaluated(1.0);
  }
  EXPECT_NEAR(world.rate(), kLr * 0.1, 1e-12);
}

TEST(ScheduleTest, SkippedStepsMoveNothing) {
  for (const auto& name : schedule_names()) {
    ScheduleWorld world(ScheduleWorld::config(name));
    const double before = world.rate();
    EXPECT_FALSE(world.schedule.step(StepResult::of(false)));
    EXPECT_EQ(world.rate(), before) << name;
    EXPECT_TRUE(world.schedule.step(StepResult::of(true)));
    EXPECT_NE(world.rate(), before) << name;
  }
}

TEST(ScheduleTest, EveryNameGoesThroughAWholeRun) {
  for (const auto& name : schedule_names()) {
    auto config = small_config();
    config.schedule = ScheduleWorld::config(name);
    Trainer trainer(config, linear_model(), quadrants());
    std::vector<double> rates;
    trainer.run({.on_step = [&](const StepRecord& record) {
      rates.push_back(record.learning_rate);
    }});
    ASSERT_EQ(rates.size(), 16U) << name;
    EXPECT_NEAR(*std::ranges::max_element(rates), config.optimizer.lr, 1e-4);
    EXPECT_LT(rates.front(), 0.1 * config.optimizer.lr) << name;
  }
}

TEST(ScheduleTest, KeysOfAScheduleAreThoseThatChangeIt) {
  const auto settings = [](const RunConfig& config) {
    const auto weight = torch::ones({1}).requires_grad_();
    torch::optim::SGD optimizer(
        {weight}, torch::optim::SGDOptions(kLr).momentum(0.9));
    const auto state = Schedule(config.schedule, optimizer, 200).state_dict();
    std::string text;
    for (const auto& [name, value] : state.entries()) {
      text += name + " " + io::describe(value) + "\n";
    }
    return text;
  };
  RunConfig config;
  for (const auto& key : owned_keys_of(config, "schedule")) {
    for (const auto& name : schedule_names()) {
      RunConfig plain;
      plain.schedule.name = name;
      const bool has =
          std::ranges::find(key.only_of, name) != key.only_of.end();
      EXPECT_EQ(settings(changed(plain, key.name)) != settings(plain), has)
          << key.name << " of " << name;
    }
  }
}

} // namespace
} // namespace ampkit::zoo
