#pragma once

#include <cstdint>
#include <vector>

#include "report/run_log.h"

namespace ampkit::zoo {

/// Points to draw: at most about `max_points` (at least 4) of `series`, those
/// where a bucket of equally many steps is lowest and highest, so that a single
/// spike survives. Values that are not finite are left out, but a bucket of
/// nothing else leaves one NaN, which interrupts the curve. First and last
/// finite points are kept.
Series downsample(const Series& series, int64_t max_points);

/// The series smoothed: the mean of two exponential means over about `window`
/// points, one forward and one backward, corrected at their starts as Adam's
/// moments are. Values that are not finite are left out.
Series smooth(const Series& series, double window);

/// Steps whose value is not finite.
std::vector<int64_t> non_finite_steps(const Series& series);

/// At most `count` of `steps`, evenly chosen, first and last among them.
std::vector<int64_t> thin(const std::vector<int64_t>& steps, size_t count);

} // namespace ampkit::zoo
