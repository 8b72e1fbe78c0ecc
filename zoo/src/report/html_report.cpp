#include <ampkit/zoo/report/html_report.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <ampkit/version.h>

#include "report/assets.h"
#include "report/chart_data.h"
#include "report/config_table.h"
#include "report/html.h"
#include "report/machine_table.h"
#include "report/run_log.h"
#include "report/summary.h"

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return std::nullopt;
  }
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

/// The folder's own name, whatever way the path to it is written.
std::string run_name(const fs::path& run_dir) {
  const auto path = fs::weakly_canonical(run_dir);
  return path.has_filename() ? path.filename().string()
                             : path.parent_path().filename().string();
}

/// Nothing may be loaded from anywhere, whatever a text in the run says.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:";

std::string head(const std::string& name) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{} · ampkit report</title>\n<style>\n{}</style>\n</head>\n",
      kPolicy,
      escape_html(name),
      report_css());
}

std::string cards_html(const std::vector<Card>& cards) {
  std::string out = "<dl class=\"cards\">\n";
  for (const auto& card : cards) {
    out += fmt::format(
        "<div class=\"card\"><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n",
        escape_html(card.name),
        escape_html(card.value),
        escape_html(card.note));
  }
  return out + "</dl>\n";
}

/// A figure with an empty canvas, which the script draws on.
std::string chart_html(const Chart& chart) {
  const auto title = escape_html(chart.title);
  return fmt::format(
      "<figure id=\"{0}\" class=\"chart\">\n<h3>{1}{2}</h3>\n"
      "<div class=\"plot\" tabindex=\"0\" role=\"group\" "
      "aria-label=\"Chart: {1}. Arrow keys read its values.\">"
      "<canvas role=\"img\" aria-label=\"{1}\" "
      "aria-describedby=\"{0}-summary\"></canvas></div>\n"
      "<p class=\"reader\" aria-live=\"polite\"></p>\n"
      "<figcaption id=\"{0}-summary\">{3}</figcaption>\n</figure>\n",
      chart.id,
      title,
      chart.unit.empty()
          ? ""
          : fmt::format(" <span>{}</span>", escape_html(chart.unit)),
      escape_html(chart.summary));
}

std::string curves_html(const std::vector<Chart>& charts) {
  std::string out = "<section><h2>Curves</h2>\n";
  if (chart_js().empty()) {
    out +=
        "<p class=\"note\">This ampkit was built without Chart.js, so there is "
        "only the text. For curves: apt-get install libjs-chart.js, then "
        "configure and build again.</p>\n";
  }
  out +=
      "<noscript><p class=\"note\">The curves need JavaScript; the text "
      "below each says what it shows.</p></noscript>\n"
      "<div class=\"charts\">\n";
  for (const auto& chart : charts) {
    out += chart_html(chart);
  }
  return out + "</div></section>\n";
}

/// What a reader must know about the data before trusting the curves.
std::string notes_html(const RunLog& log) {
  std::string out;
  if (log.unreadable_lines > 0) {
    out += fmt::format(
        "<p class=\"note\">{} of metrics.jsonl could not be read and {} left "
        "out.</p>\n",
        format_plural(log.unreadable_lines, "line"),
        log.unreadable_lines == 1 ? "is" : "are");
  }
  if (log.restarts > 0) {
    out += fmt::format(
        "<p class=\"note\">The run was resumed {} and repeated steps; the "
        "last record of each counts.</p>\n",
        format_plural(log.restarts, "time"));
  }
  return out;
}

/// A cell for the value at `step`; a dash where the metric has none there.
template <typename Format>
std::string cell(const Series& series, int64_t step, Format format) {
  for (const auto& point : series) {
    if (point.step == step) {
      return "<td>" + format(point.value) + "</td>";
    }
  }
  return "<td>-</td>";
}

std::string evaluations_html(const RunLog& log) {
  if (log.eval.empty()) {
    return "";
  }
  const bool averaged = !log.eval_series("ema_accuracy").empty();
  std::string out = fmt::format(
      "<section><h2>Evaluations</h2>\n<div class=\"scroll\">"
      "<table class=\"grid\">\n<thead><tr><th scope=\"col\">Epoch</th>"
      "<th scope=\"col\">Step</th><th scope=\"col\">Loss</th>"
      "<th scope=\"col\">Accuracy</th>{}</tr></thead>\n<tbody>\n",
      averaged ? "<th scope=\"col\">Averaged weights</th>" : "");
  for (const auto& [step, ignored] : log.eval.begin()->second) {
    out += "<tr>" + cell(log.eval_series("epoch"), step, format_number) +
           "<td>" + format_count(step) + "</td>" +
           cell(log.eval_series("loss"), step, format_number) +
           cell(log.eval_series("accuracy"), step, format_percent);
    if (averaged) {
      out += cell(log.eval_series("ema_accuracy"), step, format_percent);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div></section>\n";
}

std::string section(const std::string& title, const std::string& html) {
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", title, html);
}

std::string missing_file(const std::string& name) {
  return "<p class=\"note\">The run has no " + name + ".</p>\n";
}

std::string scripts(const std::vector<Chart>& charts) {
  if (chart_js().empty()) {
    return "";
  }
  return fmt::format(
      "<script>{}</script>\n"
      "<script type=\"application/json\" id=\"chart-data\">{}</script>\n"
      "<script>\n{}</script>\n",
      chart_js(),
      charts_json(charts),
      report_js());
}

std::string page(const fs::path& run_dir, const RunLog& log) {
  const auto name = run_name(run_dir);
  const auto charts = make_charts(log);
  const auto toml = read_text(run_dir / "config.toml");
  const auto config = toml ? config_table(*toml)
                           : ConfigTable{.html = missing_file("config.toml")};
  const auto machine = read_text(run_dir / "machine.json");
  return head(name) +
         fmt::format(
             "<body>\n<header><p>ampkit training report</p><h1>{}{}</h1>"
             "</header>\n<main>\n",
             escape_html(name),
             config.precision.empty()
                 ? ""
                 : fmt::format(
                       " <span>{}</span>", escape_html(config.precision))) +
         notes_html(log) +
         cards_html(make_cards(log, config.samples_per_step)) +
         curves_html(charts) + evaluations_html(log) +
         "<div class=\"columns\">\n" + section("Configuration", config.html) +
         section(
             "Machine",
             machine ? machine_table(*machine) : missing_file("machine.json")) +
         "</div>\n</main>\n<footer>Written by ampkit " AMPKIT_VERSION
         ". Charts: Chart.js, MIT licence.</footer>\n" +
         scripts(charts) + "</body>\n</html>\n";
}

/// Readers see the old file or the new one.
void replace_file(const fs::path& file, const std::string& text) {
  auto temporary = file;
  temporary += ".new";
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) {
    fs::rename(temporary, file, error);
  }
  if (!out || error) {
    std::error_code ignored; // the first failure is the one to report
    fs::remove(temporary, ignored);
    TORCH_CHECK(
        false,
        "write_html_report: cannot write ",
        file.string(),
        error ? ": " + error.message() : "",
        "; is its folder there and not full?");
  }
}

} // namespace

void write_html_report(const fs::path& run_dir, const fs::path& output) {
  const auto log = read_run_log(run_dir / "metrics.jsonl");
  replace_file(output, page(run_dir, log));
}

fs::path default_report_path(const fs::path& run_dir) {
  return run_dir / "report.html";
}

} // namespace ampkit::zoo
