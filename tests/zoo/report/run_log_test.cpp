#include "report/run_log.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/errors.h"

namespace ampkit::zoo {
namespace {

using ::testing::ElementsAre;

/// A log of the lines given.
RunLog log_of(const std::vector<std::string>& lines) {
  RunLog log;
  for (const auto& line : lines) {
    add_line(log, line);
  }
  return log;
}

std::vector<double> values(const Series& series) {
  std::vector<double> result;
  for (const auto& point : series) {
    result.push_back(point.value);
  }
  return result;
}

TEST(RunLogTest, RowsBecomeSeriesByKindAndName) {
  const auto log = log_of(
      {R"({"kind":"train","step":1,"loss":2.5,"skipped":true})",
       R"({"kind":"train","step":2,"loss":1.5,"skipped":false})",
       R"({"kind":"eval","step":2,"loss":3,"accuracy":0.5})"});
  EXPECT_THAT(values(log.train_series("loss")), ElementsAre(2.5, 1.5));
  EXPECT_THAT(values(log.eval_series("accuracy")), ElementsAre(0.5));
  EXPECT_THAT(log.skipped_steps(), ElementsAre(1));
  EXPECT_TRUE(log.train_series("grad_norm").empty());
  EXPECT_EQ(log.unreadable_lines, 0);
}

TEST(RunLogTest, NumbersThatAreNotFiniteAreRead) {
  const auto log = log_of(
      {R"({"kind":"train","step":1,"a":"NaN","b":"Infinity"})",
       R"({"kind":"train","step":2,"a":null,"b":"-Infinity","c":"text"})"});
  EXPECT_TRUE(std::isnan(log.train_series("a")[0].value));
  EXPECT_TRUE(std::isnan(log.train_series("a")[1].value));
  EXPECT_THAT(values(log.train_series("b")), ElementsAre(INFINITY, -INFINITY));
  EXPECT_TRUE(log.train_series("c").empty());
}

TEST(RunLogTest, LinesThatCannotBeReadAreCounted) {
  const auto log = log_of(
      {R"({"kind":"train","step":1,"loss":2})",
       R"({"kind":"train","step":2,"lo)", // torn
       R"([1, 2])",
       R"({"kind":"train","step":"two","loss":1})",
       R"({"kind":"profile","step":3})"}); // of a newer version
  EXPECT_EQ(log.unreadable_lines, 3);
  EXPECT_EQ(log.train_series("loss").size(), 1);
}

TEST(RunLogTest, ResumedRunReplacesTheStepsThatItRepeats) {
  const auto log = log_of(
      {R"({"kind":"train","step":1,"loss":1})",
       R"({"kind":"train","step":2,"loss":2})",
       R"({"kind":"eval","step":2,"loss":9})",
       R"({"kind":"train","step":3,"loss":3})",
       R"({"kind":"train","step":2,"loss":20})",
       R"({"kind":"train","step":3,"loss":30})"});
  EXPECT_THAT(values(log.train_series("loss")), ElementsAre(1, 20, 30));
  EXPECT_TRUE(log.eval_series("loss").empty());
  EXPECT_EQ(log.restarts, 1);
}

class RunLogFileTest : public ::testing::Test {
 protected:
  RunLogFileTest() { std::filesystem::create_directories(folder_); }
  ~RunLogFileTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& text) {
    std::ofstream(folder_ / "metrics.jsonl") << text;
    return folder_ / "metrics.jsonl";
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("ampkit_run_log_test_" + std::to_string(getpid()));
};

TEST_F(RunLogFileTest, TornLastLineIsLeftOut) {
  const auto file =
      write("{\"kind\":\"train\",\"step\":1,\"loss\":2}\n\n{\"kind\":\"tra");
  const auto log = read_run_log(file);
  EXPECT_EQ(log.train_series("loss").size(), 1);
  EXPECT_EQ(log.unreadable_lines, 1);
}

TEST_F(RunLogFileTest, MissingFileIsAnErrorThatNamesIt) {
  EXPECT_ERROR(
      read_run_log(folder_ / "metrics.jsonl"),
      c10::ValueError,
      "cannot read " + (folder_ / "metrics.jsonl").string(),
      std::string("must be the folder of a training run"));
}

TEST_F(RunLogFileTest, EmptyFileIsAnErrorThatNamesIt) {
  const auto file = write("");
  EXPECT_ERROR(
      read_run_log(file),
      c10::Error,
      file.string() + " holds no record of a step; the run ended");
}

TEST_F(RunLogFileTest, FileOfOtherTextIsAnErrorThatSaysSo) {
  const auto file = write("hello\nworld\n");
  EXPECT_ERROR(
      read_run_log(file), c10::Error, "only lines that cannot be read");
}

} // namespace
} // namespace ampkit::zoo
