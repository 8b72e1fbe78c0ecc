#include "report/downsample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ampkit::zoo {
namespace {

bool lower(const Point& left, const Point& right) {
  return left.value < right.value;
}

/// The lowest and the highest of [begin, end), in the order of steps.
void add_extremes(
    Series& out, Series::const_iterator begin, Series::const_iterator end) {
  auto [low, high] = std::minmax_element(begin, end, lower);
  if (high < low) {
    std::swap(low, high);
  }
  out.push_back(*low);
  if (low != high) {
    out.push_back(*high);
  }
}

void add_bucket(
    Series& out, Series::const_iterator begin, Series::const_iterator end) {
  Series finite;
  std::copy_if(begin, end, std::back_inserter(finite), [](const Point& point) {
    return std::isfinite(point.value);
  });
  if (finite.empty()) {
    out.push_back({begin->step, std::numeric_limits<double>::quiet_NaN()});
  } else {
    add_extremes(out, finite.begin(), finite.end());
  }
}

bool is_finite(const Point& point) {
  return std::isfinite(point.value);
}

/// Adds half of the running mean of [value, ...) to, and takes half of the
/// value itself from, each point of [begin, end).
template <typename Out, typename In>
void add_exponential_mean(Out begin, Out end, In value, double window) {
  const double keep = 1.0 - 2.0 / (window + 1.0);
  double mean = 0;
  double weight = 0;
  for (auto point = begin; point != end; ++point, ++value) {
    mean = keep * mean + (1.0 - keep) * value->value;
    weight = keep * weight + (1.0 - keep);
    point->value += (mean / weight - value->value) / 2;
  }
}

/// Puts the first and the last finite point back if they were no extremes.
void keep_ends(Series& out, const Series& series) {
  const auto first = std::find_if(series.begin(), series.end(), is_finite);
  if (first == series.end()) {
    return;
  }
  const auto last = *std::find_if(series.rbegin(), series.rend(), is_finite);
  if (out.front().step > first->step) {
    out.insert(out.begin(), *first);
  }
  if (out.back().step < last.step) {
    out.push_back(last);
  }
}

} // namespace

Series downsample(const Series& series, int64_t max_points) {
  const auto size = static_cast<int64_t>(series.size());
  if (size == 0) {
    return {};
  }
  const int64_t buckets =
      size <= max_points ? size : std::max<int64_t>(1, max_points / 2 - 1);
  Series out;
  for (int64_t i = 0; i < buckets; ++i) {
    add_bucket(
        out,
        series.begin() + i * size / buckets,
        series.begin() + (i + 1) * size / buckets);
  }
  keep_ends(out, series);
  return out;
}

Series smooth(const Series& series, double window) {
  Series out;
  std::copy_if(
      series.begin(), series.end(), std::back_inserter(out), is_finite);
  const auto values = out;
  // One direction alone lags behind every slope.
  add_exponential_mean(out.begin(), out.end(), values.begin(), window);
  add_exponential_mean(out.rbegin(), out.rend(), values.rbegin(), window);
  return out;
}

std::vector<int64_t> non_finite_steps(const Series& series) {
  std::vector<int64_t> steps;
  for (const auto& point : series) {
    if (!is_finite(point)) {
      steps.push_back(point.step);
    }
  }
  return steps;
}

std::vector<int64_t> thin(const std::vector<int64_t>& steps, size_t count) {
  if (steps.size() <= count || count < 2) {
    return steps;
  }
  std::vector<int64_t> kept;
  for (size_t i = 0; i < count; ++i) {
    kept.push_back(steps[i * (steps.size() - 1) / (count - 1)]);
  }
  return kept;
}

} // namespace ampkit::zoo
