#include "report/summary.h"
#include "support/float_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ampkit::zoo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Four steps, the second skipped, and two evaluations.
RunLog example_log() {
  RunLog log;
  log.train["loss"] = {{1, 2.0}, {2, kInf}, {3, 1.0}, {4, 0.5}};
  log.train["scale"] = {{1, 1024}, {2, 1024}, {3, 512}, {4, 512}};
  log.train["skipped"] = {{1, 0}, {2, 1}, {3, 0}, {4, 0}};
  log.train["grad_norm"] = {{1, 3.0}, {2, kInf}, {3, 9.0}, {4, 4.0}};
  log.train["samples_per_second"] = {{1, 50}, {2, 100}, {3, 100}, {4, 100}};
  log.eval["loss"] = {{2, 1.5}, {4, 0.75}};
  log.eval["accuracy"] = {{2, 0.9}, {4, 0.8}};
  log.eval["seconds"] = {{2, 2.0}, {4, 3.0}};
  return log;
}

std::string card(const std::vector<Card>& cards, const std::string& name) {
  for (const auto& entry : cards) {
    if (entry.name == name) {
      return entry.value + "|" + entry.note;
    }
  }
  return "no card";
}

TEST(SummaryTest, ExtremesPassOverWhatIsNotFinite) {
  const auto found = extremes(example_log().train_series("grad_norm"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->low.step, 1);
  EXPECT_EQ(found->high.step, 3);
  EXPECT_EQ(found->median, 4.0);
  EXPECT_FALSE(extremes({{1, kInf}}).has_value());
  EXPECT_FALSE(extremes({}).has_value());
}

TEST(SummaryTest, SentencesSayWhatTheChartShows) {
  const auto log = example_log();
  EXPECT_EQ(
      describe_loss(log),
      "Training loss went from 2 at step 1 to 0.5 at step 4. Not finite at 1 "
      "step (2). Evaluation loss: lowest 0.75 at step 4, at the end 0.75.");
  EXPECT_THAT(
      describe_accuracy(log),
      HasSubstr("best 90.00 % at step 2, at the end "
                "80.00 %"));
  EXPECT_THAT(
      describe_scale(log),
      HasSubstr("began at 1,024, ended at 512 and was between 512 and 1,024. "
                "1 of 4 steps skipped (25.00 %)"));
  EXPECT_THAT(describe_gradient_norm(log), HasSubstr("highest 9 at step 3"));
}

TEST(SummaryTest, MetricThatWasNotRecordedHasNoSentence) {
  EXPECT_EQ(describe_loss({}), "");
  EXPECT_EQ(describe_accuracy({}), "");
  EXPECT_EQ(describe_scale({}), "");
  EXPECT_EQ(describe_gradient_norm({}), "");
  EXPECT_EQ(describe_learning_rate({}), "");
  EXPECT_EQ(describe_throughput({}), "");
  EXPECT_EQ(describe_memory({}), "");
  EXPECT_EQ(describe_nan_rate({}), "");
}

TEST(SummaryTest, LossThatWasNeverFiniteIsSaid) {
  RunLog log;
  log.train["loss"] = {{1, kInf}, {2, kInf}};
  EXPECT_EQ(describe_loss(log), "Training loss was never finite.");
}

TEST(SummaryTest, CardsGiveTheResults) {
  const auto cards = make_cards(example_log(), 100);
  EXPECT_EQ(card(cards, "Best accuracy"), "90.00 %|at step 2");
  EXPECT_EQ(card(cards, "Final accuracy"), "80.00 %|at step 4");
  EXPECT_EQ(card(cards, "Final loss"), "0.75|evaluation");
  EXPECT_EQ(card(cards, "Skipped"), "1|25.00 % of the steps");
  // 100 / 50 + 3 * 100 / 100 in steps, 2 + 3 in evaluations.
  EXPECT_EQ(card(cards, "Time"), "10.0 s|in steps and evaluations");
  EXPECT_EQ(card(cards, "Memory"), "no card");
}

TEST(SummaryTest, TimeIsUnknownWithoutTheBatchSize) {
  EXPECT_EQ(card(make_cards(example_log(), 0), "Time"), "no card");
  EXPECT_EQ(seconds_spent(example_log(), 0), 0);
}

TEST(SummaryTest, BetterAveragedWeightsAreTheResult) {
  auto log = example_log();
  log.eval["ema_accuracy"] = {{2, 0.85}, {4, 0.95}};
  EXPECT_EQ(
      card(make_cards(log, 0), "Best accuracy"),
      "95.00 %|at step 4, averaged weights");
  EXPECT_THAT(describe_accuracy(log), HasSubstr("Averaged weights: best 95"));
  log.eval["ema_accuracy"] = {{2, 0.1}, {4, 0.2}};
  EXPECT_THAT(
      card(make_cards(log, 0), "Best accuracy"), Not(HasSubstr("averaged")));
}

} // namespace
} // namespace ampkit::zoo
