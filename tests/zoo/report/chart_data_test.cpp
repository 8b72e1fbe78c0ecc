#include "report/chart_data.h"
#include "support/float_limits.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ampkit::zoo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> ids(const std::vector<Chart>& charts) {
  std::vector<std::string> result;
  for (const auto& chart : charts) {
    result.push_back(chart.id);
  }
  return result;
}

TEST(ChartDataTest, OnlyWhatWasRecordedHasAChart) {
  RunLog log;
  EXPECT_THAT(ids(make_charts(log)), IsEmpty());
  log.train["loss"] = {{1, 2.0}};
  log.train["memory_mb"] = {{1, 400.0}};
  log.train["nan_rate"] = {{1, 0.0}};
  EXPECT_THAT(ids(make_charts(log)), ElementsAre("loss", "memory"));
  log.train["nan_rate"].push_back({2, 0.5});
  EXPECT_THAT(ids(make_charts(log)), ElementsAre("loss", "memory", "nan-rate"));
}

TEST(ChartDataTest, SkippedStepsAreMarkedOnTheScale) {
  RunLog log;
  log.train["scale"] = {{1, 1024}, {2, 1024}, {3, 512}};
  log.train["skipped"] = {{1, 0}, {2, 1}, {3, 0}};
  const auto charts = make_charts(log);
  ASSERT_EQ(charts.size(), 1);
  EXPECT_EQ(charts[0].log_base, 2);
  ASSERT_EQ(charts[0].marks.size(), 1);
  EXPECT_EQ(charts[0].marks[0].label, "Skipped step");
  ASSERT_EQ(charts[0].marks[0].points.size(), 1);
  EXPECT_EQ(charts[0].marks[0].points[0].step, 2);
  EXPECT_EQ(charts[0].marks[0].points[0].value, 1024);
}

TEST(ChartDataTest, GradientNormsThatAreNotFiniteAreMarked) {
  RunLog log;
  log.train["grad_norm"] = {{1, 2.0}, {2, kInf}, {3, 4.0}};
  const auto chart = make_charts(log).at(0);
  ASSERT_EQ(chart.marks.size(), 1);
  EXPECT_EQ(chart.marks[0].points[0].step, 2);
  EXPECT_EQ(chart.marks[0].points[0].value, 4.0); // at the top
}

TEST(ChartDataTest, WideRangeHasALogarithmicAxis) {
  RunLog log;
  log.train["grad_norm"] = {{1, 1000.0}, {2, 2.0}, {3, 1.0}};
  EXPECT_EQ(make_charts(log).at(0).log_base, 10);
  log.train["grad_norm"][2].value = 0.0; // which has no logarithm
  EXPECT_EQ(make_charts(log).at(0).log_base, 0);
}

TEST(ChartDataTest, LongSeriesIsThinnedAndSmoothed) {
  RunLog log;
  for (int64_t step = 1; step <= 50000; ++step) {
    log.train["loss"].push_back({step, step == 30000 ? 77.0 : 1.0});
  }
  const auto chart = make_charts(log).at(0);
  ASSERT_EQ(chart.curves.size(), 2);
  EXPECT_EQ(chart.curves[0].style, CurveStyle::faint);
  EXPECT_LT(chart.curves[0].points.size(), 2000);
  EXPECT_THAT(charts_json({chart}), HasSubstr("77"));
}

TEST(ChartDataTest, JsonIsSafeInAScriptElementAndHasNoNan) {
  Chart chart{.id = "loss"};
  chart.curves.push_back(
      {"</script><script>alert(1)",
       CurveStyle::steps,
       {{1, NAN}, {2, 131072}}});
  const auto text = charts_json({chart});
  EXPECT_THAT(text, Not(HasSubstr("<")));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json[0]["curves"][0]["label"], "</script><script>alert(1)");
  EXPECT_EQ(json[0]["curves"][0]["style"], "steps");
  EXPECT_TRUE(json[0]["curves"][0]["y"][0].is_null());
  EXPECT_EQ(json[0]["curves"][0]["y"][1], 131072);
}

} // namespace
} // namespace ampkit::zoo
