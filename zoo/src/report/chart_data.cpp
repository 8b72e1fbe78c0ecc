#include "report/chart_data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "report/downsample.h"
#include "report/summary.h"

namespace ampkit::zoo {
namespace {

using Json = nlohmann::ordered_json;

// More than a chart has pixels across; fewer make a smaller file.
constexpr int64_t kMaxPoints = 1200;
constexpr size_t kMaxMarks = 300;
constexpr const char* kAveraged = "Evaluation, averaged weights";

Curve thinned(std::string label, CurveStyle style, const Series& series) {
  return {std::move(label), style, downsample(series, kMaxPoints)};
}

/// A noisy metric: the values, faint, and their smoothed course.
void add_noisy(Chart& chart, const std::string& label, const Series& series) {
  constexpr size_t kEnoughToSmooth = 50;
  constexpr double kWindows = 40; // smoothed course: this many windows long
  constexpr double kWidest = 500;
  if (series.size() < kEnoughToSmooth) {
    chart.curves.push_back(thinned(label, CurveStyle::line, series));
    return;
  }
  const auto window =
      std::clamp(static_cast<double>(series.size()) / kWindows, 5.0, kWidest);
  chart.curves.push_back(thinned(label, CurveStyle::faint, series));
  chart.curves.push_back(
      thinned(label + ", smoothed", CurveStyle::line, smooth(series, window)));
}

/// Marks at the top of the chart where a value is not finite.
void add_non_finite(Chart& chart, const Series& series) {
  const auto found = extremes(series);
  Marks marks{.label = "Not finite"};
  for (const auto step : thin(non_finite_steps(series), kMaxMarks)) {
    marks.points.push_back({step, found ? found->high.value : 1.0});
  }
  if (!marks.points.empty()) {
    chart.marks.push_back(std::move(marks));
  }
}

/// 10 if the values span so much that a linear axis would hide most of them.
int log_base(const Series& series) {
  constexpr double kWide = 50;
  const auto found = extremes(series);
  return found && found->low.value > 0 &&
                 found->high.value > kWide * found->median
             ? 10
             : 0;
}

Chart loss_chart(const RunLog& log) {
  Chart chart{.id = "loss", .title = "Loss", .summary = describe_loss(log)};
  const auto& train = log.train_series("loss");
  chart.log_base = log_base(train);
  if (!train.empty()) {
    add_noisy(chart, "Training", train);
    add_non_finite(chart, train);
  }
  const auto& eval = log.eval_series("loss");
  if (!eval.empty()) {
    chart.curves.push_back(thinned("Evaluation", CurveStyle::points, eval));
  }
  const auto& averaged = log.eval_series("ema_loss");
  if (!averaged.empty()) {
    chart.curves.push_back(thinned(kAveraged, CurveStyle::points, averaged));
  }
  return chart;
}

Series in_percent(Series fractions) {
  for (auto& point : fractions) {
    point.value *= 100;
  }
  return fractions;
}

Chart accuracy_chart(const RunLog& log) {
  Chart chart{
      .id = "accuracy",
      .title = "Accuracy",
      .unit = "%",
      .summary = describe_accuracy(log)};
  chart.curves.push_back(thinned(
      "Evaluation",
      CurveStyle::points,
      in_percent(log.eval_series("accuracy"))));
  const auto& averaged = log.eval_series("ema_accuracy");
  if (!averaged.empty()) {
    chart.curves.push_back(
        thinned(kAveraged, CurveStyle::points, in_percent(averaged)));
  }
  return chart;
}

/// The value of `series` at `step`, or of the last one before it.
double value_at(const Series& series, int64_t step) {
  auto found = std::upper_bound(
      series.begin(), series.end(), step, [](int64_t at, const Point& point) {
        return at < point.step;
      });
  return found == series.begin() ? series.front().value : (--found)->value;
}

Chart scale_chart(const RunLog& log) {
  const auto& scale = log.train_series("scale");
  Chart chart{
      .id = "scale",
      .title = "Loss scale and skipped steps",
      .summary = describe_scale(log),
      .log_base = 2};
  chart.curves.push_back(thinned("Loss scale", CurveStyle::steps, scale));
  Marks skipped{.label = "Skipped step"};
  for (const auto step : thin(log.skipped_steps(), kMaxMarks)) {
    skipped.points.push_back({step, value_at(scale, step)});
  }
  if (!skipped.points.empty()) {
    chart.marks.push_back(std::move(skipped));
  }
  return chart;
}

Chart gradient_norm_chart(const RunLog& log) {
  const auto& norm = log.train_series("grad_norm");
  Chart chart{
      .id = "grad-norm",
      .title = "Gradient norm",
      .summary = describe_gradient_norm(log),
      .log_base = log_base(norm)};
  add_noisy(chart, "Gradient norm", norm);
  add_non_finite(chart, norm);
  return chart;
}

/// A metric with one curve and nothing special about it.
Chart plain_chart(Chart chart, const std::string& label, const Series& series) {
  chart.curves.push_back(thinned(label, CurveStyle::line, series));
  return chart;
}

std::string style_name(CurveStyle style) {
  switch (style) {
    case CurveStyle::faint:
      return "faint";
    case CurveStyle::points:
      return "points";
    case CurveStyle::steps:
      return "steps";
    case CurveStyle::line:
      break;
  }
  return "line";
}

/// Whole numbers as they are, others in more digits than a screen shows. JSON
/// has no NaN: null is a gap.
Json rounded(double value) {
  constexpr double kExact = 9e15; // whole numbers have their own double to here
  if (!std::isfinite(value)) {
    return {};
  }
  if (std::abs(value) < kExact && std::floor(value) == value) {
    return static_cast<int64_t>(value);
  }
  return std::stod(fmt::format("{:.5g}", value));
}

Json points_json(const Series& points) {
  auto x = Json::array();
  auto y = Json::array();
  for (const auto& point : points) {
    x.push_back(point.step);
    y.push_back(rounded(point.value));
  }
  return {{"x", x}, {"y", y}};
}

Json chart_json(const Chart& chart) {
  auto curves = Json::array();
  for (const auto& curve : chart.curves) {
    auto json = points_json(curve.points);
    json["label"] = curve.label;
    json["style"] = style_name(curve.style);
    curves.push_back(std::move(json));
  }
  auto marks = Json::array();
  for (const auto& mark : chart.marks) {
    auto json = points_json(mark.points);
    json["label"] = mark.label;
    marks.push_back(std::move(json));
  }
  return {
      {"id", chart.id},
      {"unit", chart.unit},
      {"logBase", chart.log_base},
      {"curves", std::move(curves)},
      {"marks", std::move(marks)}};
}

} // namespace

std::vector<Chart> make_charts(const RunLog& log) {
  const auto train = [&](const char* name) -> const Series& {
    return log.train_series(name);
  };
  std::vector<Chart> charts;
  const auto add = [&](Chart chart) {
    // No finite value, no sentence: the metric was not recorded.
    if (!chart.summary.empty()) {
      charts.push_back(std::move(chart));
    }
  };
  add(loss_chart(log));
  add(accuracy_chart(log));
  if (!train("scale").empty()) {
    add(scale_chart(log));
  }
  add(gradient_norm_chart(log));
  add(plain_chart(
      {.id = "learning-rate",
       .title = "Learning rate",
       .summary = describe_learning_rate(log)},
      "Learning rate",
      train("learning_rate")));
  Chart throughput{
      .id = "throughput",
      .title = "Throughput",
      .unit = "samples/s",
      .summary = describe_throughput(log)};
  add_noisy(throughput, "Samples per second", train("samples_per_second"));
  add(std::move(throughput));
  add(plain_chart(
      {.id = "memory",
       .title = "Memory",
       .unit = "MB",
       .summary = describe_memory(log)},
      "Memory",
      train("memory_mb")));
  const auto nan_rate = extremes(train("nan_rate"));
  if (nan_rate && nan_rate->high.value > 0) {
    add(plain_chart(
        {.id = "nan-rate",
         .title = "Rate of non-finite gradients",
         .summary = describe_nan_rate(log)},
        "Rate",
        train("nan_rate")));
  }
  return charts;
}

std::string charts_json(const std::vector<Chart>& charts) {
  auto json = Json::array();
  for (const auto& chart : charts) {
    json.push_back(chart_json(chart));
  }
  auto text = json.dump();
  // "</script>" in a text would end the element.
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u003c");
  }
  return text;
}

} // namespace ampkit::zoo
