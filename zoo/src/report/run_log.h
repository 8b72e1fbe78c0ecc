#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ampkit::zoo {

/// One value of a metric. Not finite where the run recorded that.
struct Point {
  int64_t step = 0;
  double value = 0;
};

/// The values of a metric, by rising step.
using Series = std::vector<Point>;

/// What metrics.jsonl holds, a series for each metric name.
struct RunLog {
  std::map<std::string, Series> train; // "skipped" is 0 or 1
  std::map<std::string, Series> eval;
  int64_t unreadable_lines = 0;
  int64_t restarts = 0; // times that the steps jumped back

  /// A series, empty if the run did not record it.
  const Series& train_series(const std::string& name) const;
  const Series& eval_series(const std::string& name) const;

  /// Steps at which the optimizer's step was skipped.
  std::vector<int64_t> skipped_steps() const;
};

/// Reads metrics.jsonl; see write_html_report() for what it forgives and
/// throws.
RunLog read_run_log(const std::filesystem::path& file);

/// Adds one line to `log`, or counts it as unreadable.
void add_line(RunLog& log, std::string_view line);

} // namespace ampkit::zoo
