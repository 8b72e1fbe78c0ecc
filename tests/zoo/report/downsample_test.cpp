#include "report/downsample.h"
#include "support/float_limits.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ampkit::zoo {
namespace {

using ::testing::ElementsAre;

/// Steps 1 to n, all with the value `level`.
Series flat(int64_t n, double level) {
  Series series;
  for (int64_t step = 1; step <= n; ++step) {
    series.push_back({step, level});
  }
  return series;
}

bool has(const Series& series, int64_t step, double value) {
  return std::any_of(series.begin(), series.end(), [&](const Point& point) {
    return point.step == step && point.value == value;
  });
}

TEST(DownsampleTest, ShortSeriesIsUnchanged) {
  const Series series{{1, 5.0}, {2, 3.0}, {9, 4.0}};
  const auto out = downsample(series, 100);
  ASSERT_EQ(out.size(), 3);
  EXPECT_TRUE(has(out, 9, 4.0));
}

TEST(DownsampleTest, SpikesSurvive) {
  auto series = flat(100000, 1.0);
  series[54321].value = 99.0;
  series[77777].value = -99.0;
  const auto out = downsample(series, 1000);
  EXPECT_LE(out.size(), 1002);
  EXPECT_TRUE(has(out, 54322, 99.0));
  EXPECT_TRUE(has(out, 77778, -99.0));
}

TEST(DownsampleTest, StepsRiseAndBothEndsAreKept) {
  Series series;
  for (int64_t step = 1; step <= 5000; ++step) {
    series.push_back({step, std::sin(static_cast<double>(step))});
  }
  const auto out = downsample(series, 100);
  EXPECT_EQ(out.front().step, 1);
  EXPECT_EQ(out.back().step, 5000);
  for (size_t i = 1; i < out.size(); ++i) {
    EXPECT_LT(out[i - 1].step, out[i].step);
  }
}

TEST(DownsampleTest, NonFiniteValuesLeaveAGapOnlyWhereNothingElseIs) {
  auto series = flat(1000, 1.0);
  series[10].value = kInf; // alone among finite ones
  for (size_t i = 500; i < 900; ++i) {
    series[i].value = kNan;
  }
  const auto out = downsample(series, 40);
  int64_t gaps = 0;
  for (const auto& point : out) {
    EXPECT_FALSE(std::isinf(point.value));
    gaps += std::isnan(point.value) ? 1 : 0;
    EXPECT_TRUE(!std::isnan(point.value) || point.step > 500);
  }
  EXPECT_GT(gaps, 0);
}

TEST(DownsampleTest, NoPointsAndOnlyNonFiniteOnesAreFine) {
  EXPECT_TRUE(downsample({}, 10).empty());
  const auto out = downsample(flat(100, kNan), 10);
  ASSERT_FALSE(out.empty());
  EXPECT_TRUE(std::isnan(out.front().value));
}

TEST(SmoothTest, ConstantStaysAndLineIsNotDelayed) {
  for (const auto& point : smooth(flat(100, 3.0), 20)) {
    EXPECT_NEAR(point.value, 3.0, 1e-12);
  }
  Series line;
  for (int64_t step = 0; step <= 1000; ++step) {
    line.push_back({step, static_cast<double>(step)});
  }
  // Forward and backward lags cancel far from the ends, where the weight of
  // what is beyond them, exp(-2 * 500 / 20), is nothing.
  EXPECT_NEAR(smooth(line, 20)[500].value, 500.0, 1e-9);
}

TEST(SmoothTest, NonFiniteValuesAreLeftOut) {
  const auto out = smooth({{1, 2.0}, {2, kNan}, {3, 2.0}}, 5);
  ASSERT_EQ(out.size(), 2);
  EXPECT_NEAR(out[1].value, 2.0, 1e-12);
}

TEST(StepsTest, NonFiniteStepsAreFoundAndThinnedEvenly) {
  EXPECT_THAT(
      non_finite_steps({{1, kNan}, {2, 0.0}, {3, -kInf}}), ElementsAre(1, 3));
  EXPECT_THAT(thin({1, 2, 3, 4, 5}, 3), ElementsAre(1, 3, 5));
  EXPECT_THAT(thin({1, 2}, 3), ElementsAre(1, 2));
}

} // namespace
} // namespace ampkit::zoo
