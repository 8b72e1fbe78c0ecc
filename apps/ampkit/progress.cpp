#include "progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace ampkit::app {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
// Plain lines in a whole run.
constexpr int64_t kLines = 40;

std::string clock_time(double seconds) {
  const auto whole = std::llround(seconds);
  return whole < 3600
             ? fmt::format("{}:{:02}", whole / 60, whole % 60)
             : fmt::format(
                   "{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string figures(const zoo::StepRecord& r) {
  auto text = fmt::format(
      "loss {:.4f}  lr {:.2e}  scale {:.6g}", r.loss, r.learning_rate, r.scale);
  if (r.skipped_total > 0) {
    text += fmt::format("  skipped {}", r.skipped_total);
  }
  if (r.faults_total > 0) {
    text += fmt::format(" (faults {})", r.faults_total);
  }
  return text + fmt::format("  {:.0f} images/s", r.samples_per_second);
}

} // namespace

Progress::Progress(std::ostream& out, const ProgressOptions& options)
    : out_(out), options_(options) {}

void Progress::on_step(const zoo::StepRecord& record) {
  if (first_step_ < 0) {
    first_step_ = record.step - 1;
    last_line_ = first_step_;
  }
  const bool last = record.step == options_.total_steps;
  if (options_.terminal) {
    if (last || Clock::now() - drawn_ >= kRedrawInterval) {
      drawn_ = Clock::now();
      bar_shown_ = true;
      out_ << "\r\x1b[K" << bar(record) << std::flush;
    }
    return;
  }
  const auto every = std::max<int64_t>(1, options_.total_steps / kLines);
  if (last || record.step - last_line_ >= every) {
    last_line_ = record.step;
    out_ << line(record) << std::endl;
  }
}

void Progress::on_eval(const zoo::EvalRecord& r) {
  auto text = fmt::format(
      "epoch {}/{}  step {}  test accuracy {:.2f} %  loss {:.4f}",
      r.epoch,
      options_.epochs,
      r.step,
      100 * r.accuracy,
      r.loss);
  if (r.ema_accuracy) {
    text += fmt::format("  averaged weights {:.2f} %", 100 * *r.ema_accuracy);
  }
  note(text + fmt::format("  ({} images, {:.1f} s)", r.samples, r.seconds));
}

void Progress::note(const std::string& text) {
  clear_bar();
  out_ << text << std::endl;
}

void Progress::clear_bar() {
  if (bar_shown_) {
    out_ << "\r\x1b[K";
    bar_shown_ = false;
  }
}

double Progress::seconds_left(int64_t step) const {
  const std::chrono::duration<double> passed = Clock::now() - begin_;
  const auto done = static_cast<double>(step - first_step_);
  const auto left = static_cast<double>(options_.total_steps - step);
  return done > 0 ? passed.count() / done * left : 0;
}

std::string Progress::bar(const zoo::StepRecord& record) const {
  constexpr size_t kCells = 20;
  const auto share =
      static_cast<double>(record.step) /
      static_cast<double>(std::max<int64_t>(1, options_.total_steps));
  const auto filled = static_cast<size_t>(share * kCells);
  auto text = fmt::format(
      "{:3.0f} % [{}{}] {}/{}  {}  {} left",
      100 * share,
      std::string(filled, '='),
      std::string(kCells - filled, ' '),
      record.step,
      options_.total_steps,
      figures(record),
      clock_time(seconds_left(record.step)));
  return text.substr(
      0, static_cast<size_t>(std::max<int64_t>(20, options_.width - 1)));
}

std::string Progress::line(const zoo::StepRecord& record) const {
  return fmt::format(
      "step {}/{}  epoch {}/{}  {}  {} left",
      record.step,
      options_.total_steps,
      record.epoch,
      options_.epochs,
      figures(record),
      clock_time(seconds_left(record.step)));
}

} // namespace ampkit::app
