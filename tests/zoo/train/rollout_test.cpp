#include <ampkit/zoo/train/rollout.h>

#include <cmath>
#include <limits>

#include "support/errors.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

std::vector<StepRecord> falling_loss(size_t steps, double scale = 1) {
  std::vector<StepRecord> records;
  for (size_t i = 0; i < steps; ++i) {
    const double at = static_cast<double>(i);
    records.push_back(
        {.step = static_cast<int64_t>(i) + 1,
         .loss = 2 / (1 + at / 10),
         .scale = scale,
         .grad_norm = 1 + at / 100});
  }
  return records;
}

const RolloutCheck& check_named(
    const std::vector<RolloutCheck>& checks, const std::string& name) {
  for (const auto& check : checks) {
    if (check.name == name) {
      return check;
    }
  }
  throw std::runtime_error("no check " + name);
}

std::vector<std::string> failed(const std::vector<RolloutCheck>& checks) {
  std::vector<std::string> names;
  for (const auto& check : checks) {
    if (!check.pass) {
      names.push_back(check.name);
    }
  }
  return names;
}

TEST(RolloutCheckTest, ARunLikeFp32Passes) {
  const auto reference = falling_loss(40);
  auto low = falling_loss(40, 1024);
  low[0].skipped = true;
  low[0].grad_norm = kNotANumber;
  for (auto& record : low) {
    record.loss *= 1.01;
  }
  EXPECT_THAT(failed(check_rollout(reference, low, 1.0)), IsEmpty());
}

TEST(RolloutCheckTest, EachBoundFailsByItself) {
  const auto reference = falling_loss(40);
  auto far = falling_loss(40, 1024);
  for (auto& record : far) {
    record.loss *= 1.2;
  }
  EXPECT_THAT(
      failed(check_rollout(reference, far, 1.0)), testing::ElementsAre("loss"));
  auto small = falling_loss(40, 1024);
  for (auto& record : small) {
    record.grad_norm /= 3;
  }
  EXPECT_THAT(
      failed(check_rollout(reference, small, 1.0)),
      testing::ElementsAre("gradient norm"));
  auto floored = falling_loss(40, 1024);
  floored.back().scale = 1.0;
  EXPECT_THAT(
      failed(check_rollout(reference, floored, 1.0)),
      testing::ElementsAre("scale"));
  auto skipping = falling_loss(40, 1024);
  for (size_t i = 0; i < 10; ++i) {
    skipping[i * 2].skipped = true;
  }
  EXPECT_THAT(
      failed(check_rollout(reference, skipping, 1.0)),
      testing::ElementsAre("NaN rate"));
}

TEST(RolloutCheckTest, ALossThatIsNaNFailsAndAnUnscaledOneHasNoFloor) {
  const auto reference = falling_loss(40);
  auto low = falling_loss(40);
  EXPECT_THAT(failed(check_rollout(reference, low, 1.0)), IsEmpty());
  low.back().loss = kNotANumber;
  const auto checks = check_rollout(reference, low, 1.0);
  EXPECT_FALSE(check_named(checks, "loss").pass);
  EXPECT_THAT(check_named(checks, "loss").text, HasSubstr("nan"));
}

TEST(RolloutCheckTest, BadArgumentsAreNamed) {
  const auto records = falling_loss(4);
  EXPECT_ERROR(
      check_rollout(records, records, 1, {.loss = 0}),
      c10::ValueError,
      "bounds.loss must be > 0, got 0");
  EXPECT_ERROR(
      check_rollout(records, records, 1, {.grad_norm = 0.5}),
      c10::ValueError,
      "bounds.grad_norm must be >= 1, got 0.5");
  EXPECT_ERROR(
      check_rollout(records, records, 1, {.nan_rate = 2}),
      c10::ValueError,
      "bounds.nan_rate must be in [0, 1], got 2");
  EXPECT_ERROR(
      check_rollout({}, records, 1), c10::ValueError, "0 in FP32 and 4");
}

TEST(RolloutTest, BothRunsHaveTheSameStepsAndAHealthyOnePasses) {
  auto config = small_config();
  config.data.batch_size = 16; // of 4 images, rounding soon makes other runs
  config.precision.init_scale = 1024;
  int64_t reference = 0;
  int64_t low = 0;
  const auto result = rollout(
      config, quadrants(64), 8, {}, [&](const auto& record, bool is_low) {
        auto& count = is_low ? low : reference;
        EXPECT_EQ(record.step, ++count);
      });
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(reference, 8);
  EXPECT_EQ(low, 8);
  EXPECT_TRUE(result->pass()) << to_string(*result);
  EXPECT_EQ(result->reference.front().scale, 1);
  EXPECT_EQ(result->low.front().scale, 1024);
  // The same weights and batch: the first losses differ by rounding only.
  EXPECT_NEAR(result->low.front().loss, result->reference.front().loss, 0.02);
  EXPECT_NE(result->low.front().loss, result->reference.front().loss);
}

TEST(RolloutTest, ARunThatIsGivenUpFailsAndSaysWhy) {
  auto config = small_config();
  config.precision.init_scale = 1e38; // every gradient overflows
  config.precision.dynamic_scale = false;
  config.train.patience = 3;
  const auto result = rollout(config, quadrants(64), 10);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->reference.size(), 10);
  EXPECT_EQ(result->low.size(), 3);
  EXPECT_FALSE(result->pass());
  EXPECT_EQ(result->checks.front().name, "run");
  EXPECT_THAT(to_string(*result), HasSubstr("the roll-out failed"));
}

TEST(RolloutTest, StopsWhenAskedAndRefusesWhatIsNoRollout) {
  auto config = small_config();
  EXPECT_FALSE(rollout(config, quadrants(), 10, {}, nullptr, [] {
                 return true;
               }).has_value());
  EXPECT_ERROR(
      rollout(config, quadrants(), 0),
      c10::ValueError,
      "steps must be >= 1, got 0");
  config.precision.preset = "fp32";
  EXPECT_ERROR(
      rollout(config, quadrants(), 10),
      c10::ValueError,
      "precision.preset is fp32");
}

TEST(RolloutAlarmsTest, RingOnceUntilTheyWereOffAgain) {
  RolloutResult result;
  result.reference = falling_loss(40);
  RolloutAlarms alarms(result, 1.0);
  StepRecord fine{.step = 50, .loss = 0.3, .scale = 1024, .grad_norm = 1};
  EXPECT_THAT(alarms.on_step(fine), IsEmpty());
  auto bad = fine;
  bad.loss = 5;
  bad.nan_rate = 0.5;
  EXPECT_THAT(
      alarms.on_step(bad),
      testing::ElementsAre(
          HasSubstr("step 50: loss 5"), HasSubstr("50 % of the last 100")));
  EXPECT_THAT(alarms.on_step(bad), IsEmpty());
  EXPECT_THAT(alarms.on_step(fine), IsEmpty());
  bad.loss = kNotANumber;
  bad.nan_rate = 0;
  EXPECT_THAT(alarms.on_step(bad), testing::ElementsAre(HasSubstr("loss nan")));
  fine.scale = 1.0; // not scaled: no floor
  EXPECT_THAT(alarms.on_step(fine), IsEmpty());
  fine.scale = 0.5;
  EXPECT_THAT(
      alarms.on_step(fine), testing::ElementsAre(HasSubstr("at its floor")));
}

} // namespace
} // namespace ampkit::zoo
