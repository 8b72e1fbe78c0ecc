// What a FlightLog looks like to people.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <iomanip>
#include <sstream>

#include <ampkit/diagnose/flight_recorder.h>
#include <c10/util/Exception.h>

namespace ampkit::diagnose {
namespace {

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

std::string number_text(double value, const char* not_a_number = "-") {
  std::ostringstream out;
  out << std::setprecision(4) << value;
  return std::isnan(value) ? not_a_number : out.str();
}

void append_last_words(const FlightLog& log, std::ostream& out) {
  if (log.ended.has_value()) {
    out << "ended: " << *log.ended;
  } else if (log.current_step >= 0) {
    out << "last seen in step " << log.current_step << ", " << log.phase
        << ", at " << clock_text(log.phase_time);
  } else if (!log.entries.empty()) {
    out << "last step that was over: " << log.entries.back().step;
  } else {
    out << "nothing recorded";
  }
  out << "\n";
  if (log.torn) {
    out << "it ended while recording a step, which is missing here\n";
  }
}

void append_row(
    std::ostream& out,
    const std::string& step,
    const std::vector<std::string>& numbers,
    const std::string& verdict) {
  out << std::setw(9) << step;
  for (const auto& each : numbers) {
    out << " " << std::setw(10) << each;
  }
  // The rest is in the log of the run.
  const auto end = std::min(verdict.find(';'), verdict.find(", in '"));
  out << (verdict.empty() ? "" : "  ") << verdict.substr(0, end) << "\n";
}

void append_entry(const FlightEntry& entry, std::ostream& out) {
  const auto count = std::to_string(entry.bad_values);
  append_row(
      out,
      std::to_string(entry.step),
      // NaN also stands for "not known", which a skipped step's loss is not.
      {number_text(entry.loss, entry.skipped ? "nan" : "-"),
       number_text(entry.scale),
       number_text(entry.grad_norm),
       number_text(entry.grad_max),
       entry.bad_values < 0 ? "-" : count},
      entry.verdict);
}

} // namespace

std::string to_string(const FlightLog& log, int64_t steps) {
  std::ostringstream out;
  out << "flight recorder of rank " << log.rank << " (process " << log.process
      << " on " << log.host << "), " << log.recorded << " steps recorded; ";
  append_last_words(log, out);
  const auto count =
      std::clamp<int64_t>(steps, 0, static_cast<int64_t>(log.entries.size()));
  if (count > 0) {
    append_row(out, "step", {"loss", "scale", "norm", "max", "bad"}, "");
  }
  for (auto it = log.entries.end() - count; it != log.entries.end(); ++it) {
    append_entry(*it, out);
  }
  return out.str();
}

std::string describe_flight(const std::string& path, int64_t steps) {
  try {
    return to_string(read_flight(path), steps);
  } catch (const c10::Error& error) {
    return "flight recorder: " + error.msg() + "\n";
  }
}

} // namespace ampkit::diagnose
