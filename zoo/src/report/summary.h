#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/run_log.h"

namespace ampkit::zoo {

/// The lowest, the highest and the middle finite value.
struct Extremes {
  Point low;
  Point high;
  double median = 0;
};

/// None if no value is finite.
std::optional<Extremes> extremes(const Series& series);

/// Sentences under a chart, for people who do not see it too. Empty for a
/// metric that was not recorded.
std::string describe_loss(const RunLog& log);
std::string describe_accuracy(const RunLog& log);
std::string describe_scale(const RunLog& log);
std::string describe_gradient_norm(const RunLog& log);
std::string describe_learning_rate(const RunLog& log);
std::string describe_throughput(const RunLog& log);
std::string describe_memory(const RunLog& log);
std::string describe_nan_rate(const RunLog& log);

/// A result at the top of the page.
struct Card {
  std::string name;
  std::string value;
  std::string note; // smaller, below; can be empty
};

/// The results of a run; those that it did not record are left out.
/// `samples_per_step`: of the optimizer, for the time that training took; 0 if
/// unknown.
std::vector<Card> make_cards(const RunLog& log, int64_t samples_per_step);

/// Seconds spent in steps and evaluations, from their own records; 0: unknown.
double seconds_spent(const RunLog& log, int64_t samples_per_step);

} // namespace ampkit::zoo
