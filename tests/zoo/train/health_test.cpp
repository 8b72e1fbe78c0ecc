#include "train/health.h"

#include <gtest/gtest.h>

namespace ampkit::zoo {
namespace {

TEST(HealthTest, CountsBadStepsInARow) {
  Health health;
  EXPECT_EQ(health.nan_rate(), 0);
  for (const bool finite : {true, false, false}) {
    health.record(finite);
  }
  EXPECT_EQ(health.bad_in_a_row(), 2);
  EXPECT_DOUBLE_EQ(health.nan_rate(), 2.0 / 3);
  health.record(true);
  EXPECT_EQ(health.bad_in_a_row(), 0);
  EXPECT_DOUBLE_EQ(health.nan_rate(), 0.5);
}

TEST(HealthTest, RateForgetsWhatIsOlderThanAHundredSteps) {
  Health health;
  health.record(false);
  for (int i = 0; i < 99; ++i) {
    health.record(true);
  }
  EXPECT_DOUBLE_EQ(health.nan_rate(), 0.01);
  health.record(true);
  EXPECT_EQ(health.nan_rate(), 0);
}

TEST(HealthTest, FaultsAreCountedInARowAndInAll) {
  Health health;
  health.record(false, true);
  health.record(false, false);
  health.record(false, true);
  EXPECT_EQ(health.faults_in_a_row(), 1);
  EXPECT_EQ(health.faults(), 2);
  EXPECT_EQ(health.bad_in_a_row(), 3);
}

TEST(HealthTest, StateGoesOnWhereItWas) {
  Health health;
  health.record(true);
  health.record(false, true);
  Health other;
  other.load_state_dict(health.state_dict());
  EXPECT_EQ(other.bad_in_a_row(), 1);
  EXPECT_EQ(other.faults_in_a_row(), 1);
  EXPECT_EQ(other.faults(), 1);
  EXPECT_DOUBLE_EQ(other.nan_rate(), 0.5);
}

} // namespace
} // namespace ampkit::zoo
