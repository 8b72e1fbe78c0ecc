#include "report/summary.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/downsample.h"
#include "report/html.h"

namespace ampkit::zoo {
namespace {

std::string at_step(const Point& point) {
  return "at step " + format_count(point.step);
}

Series finite(const Series& series) {
  Series out;
  std::copy_if(
      series.begin(),
      series.end(),
      std::back_inserter(out),
      [](const Point& point) { return std::isfinite(point.value); });
  return out;
}

/// "not finite at 2 steps (3, 17)", or nothing.
std::string non_finite_note(const Series& series) {
  const auto steps = non_finite_steps(series);
  if (steps.empty()) {
    return "";
  }
  constexpr size_t kNamed = 5;
  const auto named = std::min(steps.size(), kNamed);
  return fmt::format(
      " Not finite at {} ({}{}).",
      format_plural(static_cast<int64_t>(steps.size()), "step"),
      fmt::join(steps.begin(), steps.begin() + static_cast<long>(named), ", "),
      named < steps.size() ? ", …" : "");
}

/// "From 2.3 at step 1 to 0.2 at step 900, lowest 0.18 at step 880."
std::string from_to(const std::string& name, const Series& series) {
  const auto values = finite(series);
  if (values.empty()) {
    return series.empty() ? "" : name + " was never finite.";
  }
  return fmt::format(
             "{} went from {} {} to {} {}.",
             name,
             format_number(values.front().value),
             at_step(values.front()),
             format_number(values.back().value),
             at_step(values.back())) +
         non_finite_note(series);
}

std::string middle_and_extremes(
    const std::string& name, const Series& series, const std::string& unit) {
  const auto found = extremes(series);
  if (!found) {
    return series.empty() ? "" : name + " was never finite.";
  }
  return fmt::format(
             "{}: {}{} in the median, lowest {} {}, highest {} {}.",
             name,
             format_number(found->median),
             unit,
             format_number(found->low.value),
             at_step(found->low),
             format_number(found->high.value),
             at_step(found->high)) +
         non_finite_note(series);
}

std::string skipped_text(int64_t skipped, int64_t steps) {
  return fmt::format(
      "{} of {} skipped ({})",
      format_count(skipped),
      format_plural(steps, "step"),
      format_percent(
          static_cast<double>(skipped) /
          static_cast<double>(std::max<int64_t>(steps, 1))));
}

} // namespace

std::optional<Extremes> extremes(const Series& series) {
  auto values = finite(series);
  if (values.empty()) {
    return std::nullopt;
  }
  std::stable_sort(
      values.begin(), values.end(), [](const Point& a, const Point& b) {
        return a.value < b.value;
      });
  return Extremes{
      values.front(), values.back(), values[values.size() / 2].value};
}

std::string describe_loss(const RunLog& log) {
  auto text = from_to("Training loss", log.train_series("loss"));
  const auto& eval = log.eval_series("loss");
  if (const auto found = extremes(eval)) {
    text += fmt::format(
        "{}Evaluation loss: lowest {} {}, at the end {}.",
        text.empty() ? "" : " ",
        format_number(found->low.value),
        at_step(found->low),
        format_number(eval.back().value));
  }
  return text;
}

std::string describe_accuracy(const RunLog& log) {
  const auto& eval = log.eval_series("accuracy");
  const auto found = extremes(eval);
  if (!found) {
    return "";
  }
  auto text = fmt::format(
      "{}: first {} {}, best {} {}, at the end {}.",
      format_plural(static_cast<int64_t>(eval.size()), "evaluation"),
      format_percent(eval.front().value),
      at_step(eval.front()),
      format_percent(found->high.value),
      at_step(found->high),
      format_percent(eval.back().value));
  const auto& averaged = log.eval_series("ema_accuracy");
  if (const auto best = extremes(averaged)) {
    text += fmt::format(
        " Averaged weights: best {} {}, at the end {}.",
        format_percent(best->high.value),
        at_step(best->high),
        format_percent(averaged.back().value));
  }
  return text;
}

std::string describe_scale(const RunLog& log) {
  const auto& scale = log.train_series("scale");
  const auto found = extremes(scale);
  if (!found) {
    return "";
  }
  const auto skipped = log.skipped_steps();
  return fmt::format(
      "The loss scale began at {}, ended at {} and was between {} and {}. {}.",
      format_number(scale.front().value),
      format_number(scale.back().value),
      format_number(found->low.value),
      format_number(found->high.value),
      skipped.empty() ? "No step was skipped"
                      : skipped_text(
                            static_cast<int64_t>(skipped.size()),
                            static_cast<int64_t>(scale.size())));
}

std::string describe_gradient_norm(const RunLog& log) {
  return middle_and_extremes(
      "Gradient norm", log.train_series("grad_norm"), "");
}

std::string describe_learning_rate(const RunLog& log) {
  const auto& rate = log.train_series("learning_rate");
  const auto found = extremes(rate);
  if (!found) {
    return "";
  }
  return fmt::format(
      "The learning rate began at {}, was highest with {} {} and ended at {}.",
      format_number(rate.front().value),
      format_number(found->high.value),
      at_step(found->high),
      format_number(rate.back().value));
}

std::string describe_throughput(const RunLog& log) {
  return middle_and_extremes(
      "Throughput", log.train_series("samples_per_second"), " samples/s");
}

std::string describe_memory(const RunLog& log) {
  const auto found = extremes(log.train_series("memory_mb"));
  return !found ? ""
                : fmt::format(
                      "The process held at most {} MB ({}).",
                      format_number(found->high.value),
                      at_step(found->high));
}

std::string describe_nan_rate(const RunLog& log) {
  const auto found = extremes(log.train_series("nan_rate"));
  return !found
             ? ""
             : fmt::format(
                   "Recent steps with a non-finite gradient: at most {} "
                   "({}), at the end {}.",
                   format_percent(found->high.value),
                   at_step(found->high),
                   format_percent(log.train_series("nan_rate").back().value));
}

namespace {

/// The better of the weights and their average, as the trainer chooses its best
/// checkpoint.
void add_accuracy_cards(std::vector<Card>& cards, const RunLog& log) {
  const auto& plain = log.eval_series("accuracy");
  const auto& averaged = log.eval_series("ema_accuracy");
  const auto best_plain = extremes(plain);
  const auto best_averaged = extremes(averaged);
  if (!best_plain) {
    return;
  }
  const bool use_average =
      best_averaged && best_averaged->high.value > best_plain->high.value;
  const auto& best = use_average ? best_averaged->high : best_plain->high;
  const auto& last = use_average ? averaged.back() : plain.back();
  const std::string note = use_average ? ", averaged weights" : "";
  cards.push_back(
      {"Best accuracy", format_percent(best.value), at_step(best) + note});
  cards.push_back(
      {"Final accuracy", format_percent(last.value), at_step(last) + note});
}

void add_loss_card(std::vector<Card>& cards, const RunLog& log) {
  const auto& eval = log.eval_series("loss");
  const auto& train = log.train_series("loss");
  if (!eval.empty()) {
    cards.push_back(
        {"Final loss", format_number(eval.back().value), "evaluation"});
  } else if (!train.empty()) {
    cards.push_back(
        {"Final loss", format_number(train.back().value), "training"});
  }
}

void add_step_cards(std::vector<Card>& cards, const RunLog& log) {
  const auto& any = log.train_series("loss");
  if (any.empty()) {
    return;
  }
  const auto steps = static_cast<int64_t>(any.size());
  const auto& epoch = log.train_series("epoch");
  cards.push_back(
      {"Steps",
       format_count(any.back().step),
       epoch.empty() ? "" : "epoch " + format_number(epoch.back().value)});
  const auto skipped = static_cast<int64_t>(log.skipped_steps().size());
  cards.push_back(
      {"Skipped",
       format_count(skipped),
       format_percent(
           static_cast<double>(skipped) / static_cast<double>(steps)) +
           " of the steps"});
}

} // namespace

double seconds_spent(const RunLog& log, int64_t samples_per_step) {
  double seconds = 0;
  for (const auto& speed : finite(log.train_series("samples_per_second"))) {
    if (speed.value > 0) {
      seconds += static_cast<double>(samples_per_step) / speed.value;
    }
  }
  if (seconds > 0) {
    for (const auto& spent : finite(log.eval_series("seconds"))) {
      seconds += spent.value;
    }
  }
  return seconds;
}

std::vector<Card> make_cards(const RunLog& log, int64_t samples_per_step) {
  std::vector<Card> cards;
  add_accuracy_cards(cards, log);
  add_loss_card(cards, log);
  add_step_cards(cards, log);
  if (const auto seconds = seconds_spent(log, samples_per_step); seconds > 0) {
    cards.push_back(
        {"Time", format_duration(seconds), "in steps and evaluations"});
  }
  if (const auto speed = extremes(log.train_series("samples_per_second"))) {
    cards.push_back(
        {"Throughput", format_number(speed->median), "samples/s, median"});
  }
  if (const auto memory = extremes(log.train_series("memory_mb"))) {
    cards.push_back(
        {"Memory", format_number(memory->high.value) + " MB", "at most"});
  }
  return cards;
}

} // namespace ampkit::zoo
