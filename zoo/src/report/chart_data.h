#pragma once

#include <string>
#include <vector>

#include "report/run_log.h"

namespace ampkit::zoo {

/// How a curve is drawn; assets/report.js knows the names.
enum class CurveStyle {
  faint, ///< a noisy one, behind its smoothed one
  line,
  points, ///< a line with a dot at each value
  steps, ///< constant between values
};

struct Curve {
  std::string label;
  CurveStyle style = CurveStyle::line;
  Series points; // thinned already
};

/// Single events, drawn as signs of their own.
struct Marks {
  std::string label;
  Series points;
};

struct Chart {
  std::string id; // of the HTML element
  std::string title;
  std::string unit; // "" if the values have none
  std::string summary; // what the chart shows, in sentences
  int log_base = 0; // of the axis; 0: linear
  std::vector<Curve> curves;
  std::vector<Marks> marks;
};

/// The charts of a run, in the order of the page. A metric that the run did not
/// record has no chart.
std::vector<Chart> make_charts(const RunLog& log);

/// The charts as JSON for assets/report.js; safe inside a <script> element.
std::string charts_json(const std::vector<Chart>& charts);

} // namespace ampkit::zoo
