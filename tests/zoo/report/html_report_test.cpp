#include <ampkit/zoo/report/html_report.h>

#include <fstream>
#include <iterator>
#include <string>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/errors.h"

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

/// A folder with a run of two steps.
class HtmlReportTest : public ::testing::Test {
 protected:
  HtmlReportTest() {
    fs::create_directories(run_);
    write(
        "metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1,\"loss\":2}\n"
        "{\"kind\":\"train\",\"step\":2,\"loss\":1}\n");
  }
  ~HtmlReportTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(run_ / name) << text;
  }

  static std::string read(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string report() {
    write_html_report(run_, default_report_path(run_));
    return read(run_ / "report.html");
  }

  fs::path folder_ = fs::temp_directory_path() /
                     ("ampkit_html_report_test_" + std::to_string(getpid()));
  fs::path run_ = folder_ / "<script>alert('run')<";
};

TEST_F(HtmlReportTest, NeedsNothingElseAndForbidsLoadingIt) {
  const auto html = report();
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href=")));
  EXPECT_THAT(html, HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(html, HasSubstr("Chart.js v")); // with its licence line
  EXPECT_THAT(html, HasSubstr("MIT License"));
}

TEST_F(HtmlReportTest, NameOfTheRunIsEscaped) {
  const auto html = report();
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;run&#39;)&lt;</h1>"));
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
}

TEST_F(HtmlReportTest, MissingFilesAreNoted) {
  const auto html = report();
  EXPECT_THAT(html, HasSubstr("The run has no config.toml."));
  EXPECT_THAT(html, HasSubstr("The run has no machine.json."));
  EXPECT_THAT(html, Not(HasSubstr("could not be read")));
}

TEST_F(HtmlReportTest, UnreadableLinesAndRestartsAreNoted) {
  write(
      "metrics.jsonl",
      "{\"kind\":\"train\",\"step\":1,\"loss\":2}\n"
      "{\"kind\":\"train\",\"step\":1,\"loss\":2}\n{\"kind\":");
  const auto html = report();
  EXPECT_THAT(html, HasSubstr("1 line of metrics.jsonl could not be read"));
  EXPECT_THAT(html, HasSubstr("resumed 1 time"));
}

TEST_F(HtmlReportTest, TrailingSlashStillNamesTheRun) {
  write_html_report(run_ / "", folder_ / "out.html");
  EXPECT_THAT(
      read(folder_ / "out.html"), HasSubstr("<title>&lt;script&gt;alert"));
}

TEST_F(HtmlReportTest, EmptyRunIsAnErrorAndLeavesTheOldReport) {
  report();
  write("metrics.jsonl", "");
  EXPECT_ERROR(
      write_html_report(run_, run_ / "report.html"),
      c10::Error,
      "metrics.jsonl holds no record of a step");
  EXPECT_THAT(read(run_ / "report.html"), HasSubstr("</html>"));
}

TEST_F(HtmlReportTest, FolderThatIsNoRunIsAnErrorThatNamesTheFile) {
  EXPECT_ERROR(
      write_html_report(folder_, folder_ / "out.html"),
      c10::ValueError,
      "cannot read " + (folder_ / "metrics.jsonl").string());
  EXPECT_FALSE(fs::exists(folder_ / "out.html"));
}

TEST_F(HtmlReportTest, OutputThatCannotBeWrittenIsAnErrorThatNamesIt) {
  const auto output = folder_ / "no-such-folder" / "out.html";
  EXPECT_ERROR(
      write_html_report(run_, output),
      c10::Error,
      "cannot write " + output.string());
}

TEST_F(HtmlReportTest, FailedReplacementLeavesNoTemporaryFile) {
  fs::create_directories(folder_ / "taken.html" / "inside");
  EXPECT_ERROR(
      write_html_report(run_, folder_ / "taken.html"),
      c10::Error,
      "cannot write",
      "taken.html");
  EXPECT_FALSE(fs::exists(folder_ / "taken.html.new"));
}

} // namespace
} // namespace ampkit::zoo
