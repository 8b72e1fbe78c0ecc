#include <ampkit/io/json_lines.h>

#include <cmath>
#include <limits>

#include <torch/torch.h>

#include <ampkit/error.h>

#include "io/scalars.h"
#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

StateDict row_of(int64_t step, double loss) {
  StateDict row;
  row.set("step", step);
  row.set("loss", loss);
  return row;
}

class JsonLinesTest : public ::testing::Test {
 protected:
  std::vector<int64_t> steps() const {
    std::vector<int64_t> result;
    for (const auto& row : read_json_lines(path_)) {
      result.push_back(row.integer("step"));
    }
    return result;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/metrics.jsonl";
};

TEST_F(JsonLinesTest, RowsComeBackWithTypesOrderAndAllDigits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  StateDict row;
  row.set("z", 0.1);
  row.set("a", 3.0);
  row.set("step", std::numeric_limits<int64_t>::max());
  row.set("skipped", true);
  row.set("note", "größer\n\"∞\"");
  row.set("up", kInfinity);
  row.set("down", -kInfinity);
  row.set("nan", std::nan(""));
  JsonLinesWriter(path_).append(row);
  const auto rows = read_json_lines(path_);
  ASSERT_EQ(rows.size(), 1U);
  ASSERT_EQ(rows[0].size(), row.size());
  for (size_t i = 0; i + 1 < row.size(); ++i) {
    EXPECT_EQ(rows[0].entries()[i].first, row.entries()[i].first);
    EXPECT_TRUE(
        same_scalar(rows[0].entries()[i].second, row.entries()[i].second));
  }
  EXPECT_TRUE(std::isnan(rows[0].real("nan")));
}

TEST_F(JsonLinesTest, TextIsPlainJson) {
  StateDict row;
  row.set("step", 1);
  row.set("loss", std::nan(""));
  JsonLinesWriter(path_).append(row);
  EXPECT_EQ(read_text(path_), "{\"step\":1,\"loss\":\"NaN\"}\n");
}

TEST_F(JsonLinesTest, TornLastLineIsSkippedAndTheNextWriterRemovesIt) {
  JsonLinesWriter(path_).append(row_of(1, 0.5));
  const std::string whole = read_text(path_);
  write_text(path_, whole + "{\"step\":2,\"lo");
  EXPECT_EQ(steps(), std::vector<int64_t>{1});
  JsonLinesWriter log(path_);
  EXPECT_EQ(read_text(path_), whole);
  log.append(row_of(2, 0.25));
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
  write_text(path_, "{\"step\"");
  EXPECT_TRUE(read_json_lines(path_).empty());
}

TEST_F(JsonLinesTest, TruncateAfterRemovesLaterRowsAndGoesOn) {
  JsonLinesWriter log(path_);
  StateDict start;
  start.set("model", "resnet18");
  log.append(start);
  for (int64_t step = 1; step <= 5; ++step) {
    log.append(row_of(step, 0.5));
  }
  log.truncate_after(3);
  log.append(row_of(4, 0.25));
  log.flush();
  const auto rows = read_json_lines(path_);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0].text("model"), "resnet18");
  EXPECT_EQ(rows[3].integer("step"), 3);
  EXPECT_EQ(rows[4].real("loss"), 0.25);
  log.truncate_after(0);
  EXPECT_EQ(read_json_lines(path_).size(), 1U);
}

TEST_F(JsonLinesTest, WhatIsNotARowIsNamedWithItsLine) {
  const auto refused = [&](const std::string& line) {
    write_text(path_, "{\"step\":1}\n" + line + "\n{\"step\":3}\n");
    EXPECT_ERROR(
        read_json_lines(path_), CheckpointError, "line 2", path_.c_str());
  };
  refused("{\"step\":");
  refused("");
  refused("[1]");
  refused("{\"a\":[1]}");
  refused("{\"a\":null}");
  EXPECT_ERROR(
      read_json_lines(folder_.path() + "/none"),
      CheckpointError,
      "/none",
      "No such file");
  EXPECT_ERROR(
      JsonLinesWriter(folder_.path() + "/none/x"), CheckpointError, "none/x");
}

TEST_F(JsonLinesTest, RowsThatJsonCannotHoldAreRefusedUnwritten) {
  JsonLinesWriter log(path_);
  StateDict tensor;
  tensor.set("w", torch::ones({2}));
  EXPECT_ERROR(log.append(tensor), c10::ValueError, "'w'", "tensor Float [2]");
  StateDict note;
  note.set("note", "\xff");
  EXPECT_ERROR(log.append(note), c10::ValueError, "UTF-8");
  EXPECT_ERROR(log.append({}), c10::ValueError, "empty");
  EXPECT_EQ(read_text(path_), "");
}

TEST_F(JsonLinesTest, AFullDiskLeavesWholeLines) {
  JsonLinesWriter log(path_);
  log.append(row_of(1, 0.5));
  {
    const FileSizeLimit full(read_text(path_).size() + 5);
    EXPECT_ERROR(log.append(row_of(2, 0.5)), CheckpointError, path_);
  }
  log.append(row_of(3, 0.5));
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 3}));
}

} // namespace
} // namespace ampkit::io
