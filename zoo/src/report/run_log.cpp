#include "report/run_log.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

namespace ampkit::zoo {
namespace {

using Json = nlohmann::json;

const Series kNothing;

const Series& find_series(
    const std::map<std::string, Series>& all, const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? kNothing : found->second;
}

/// The number in a field; JSON has no word for those that are not finite, so
/// they come as text or null. None for what is no number.
std::optional<double> to_number(const Json& value) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (value.is_boolean()) {
    return value.get<bool>() ? 1.0 : 0.0;
  }
  if (value.is_number()) {
    return value.get<double>();
  }
  if (value.is_null()) {
    return kNan;
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "NaN" || text == "nan") {
      return kNan;
    }
    if (text == "Infinity" || text == "inf") {
      return kInf;
    }
    if (text == "-Infinity" || text == "-inf") {
      return -kInf;
    }
  }
  return std::nullopt;
}

/// Forgets `step` and everything after it; says whether there was any.
bool rewind(std::map<std::string, Series>& all, int64_t step) {
  bool any = false;
  for (auto& [name, series] : all) {
    const auto keep = std::lower_bound(
        series.begin(), series.end(), step, [](const Point& point, int64_t at) {
          return point.step < at;
        });
    any = any || keep != series.end();
    series.erase(keep, series.end());
  }
  return any;
}

void add_fields(
    std::map<std::string, Series>& all, const Json& row, int64_t step) {
  for (const auto& [name, value] : row.items()) {
    const auto number = to_number(value);
    if (number && name != "step") {
      all[name].push_back({step, *number});
    }
  }
}

} // namespace

const Series& RunLog::train_series(const std::string& name) const {
  return find_series(train, name);
}

const Series& RunLog::eval_series(const std::string& name) const {
  return find_series(eval, name);
}

std::vector<int64_t> RunLog::skipped_steps() const {
  std::vector<int64_t> steps;
  for (const auto& [step, skipped] : train_series("skipped")) {
    if (skipped != 0) {
      steps.push_back(step);
    }
  }
  return steps;
}

void add_line(RunLog& log, std::string_view line) {
  const auto row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object() || !row.contains("kind") || !row.contains("step") ||
      !row["kind"].is_string() || !row["step"].is_number_integer()) {
    ++log.unreadable_lines;
    return;
  }
  const auto step = row["step"].get<int64_t>();
  const auto& kind = row["kind"].get_ref<const std::string&>();
  if (kind == "train") {
    // A resumed run repeats the steps since its checkpoint, and the evaluations
    // after them.
    if (rewind(log.train, step)) {
      ++log.restarts;
      rewind(log.eval, step);
    }
    add_fields(log.train, row, step);
  } else if (kind == "eval") {
    rewind(log.eval, step);
    add_fields(log.eval, row, step);
  }
}

RunLog read_run_log(const std::filesystem::path& file) {
  std::ifstream in(file);
  TORCH_CHECK_VALUE(
      in.good(),
      "write_html_report: cannot read ",
      file.string(),
      "; the argument must be the folder of a training run, such as "
      "runs/NAME");
  RunLog log;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) {
      add_line(log, line);
    }
  }
  TORCH_CHECK(
      !log.train.empty() || !log.eval.empty(),
      "write_html_report: ",
      file.string(),
      " holds no record of a step",
      log.unreadable_lines > 0 ? ", only lines that cannot be read" : "",
      "; the run ended before its first step, or this is another file");
  return log;
}

} // namespace ampkit::zoo
