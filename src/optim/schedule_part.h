#pragma once

#include <cstdint>
#include <vector>

#include <ampkit/io/state_dict.h>
#include <ampkit/optim/schedule_options.h>

namespace ampkit::optim {

/// Where one schedule, alone or within a chain, is in one group.
struct Moment {
  size_t group = 0;
  /// Since this schedule began.
  int64_t step = 0;
  /// Present rate.
  double lr = 0;
  double base = 0;
};

/// Throws c10::ValueError for options out of range, or that don't fit groups
/// with these base rates.
void check_options(
    const ScheduleOptions& options, const std::vector<double>& base_lrs);

/// What a state dict has of it.
io::StateDict settings_of(const ScheduleOptions& options);
io::StateDict settings_of(const std::vector<ScheduleOptions>& schedules);

// The arithmetic of these three is in Python's order.

/// The rate of its step 0 when nothing was before it.
double first_rate(const ScheduleOptions& options, const Moment& now);

/// The rate of its step 0 when it follows another.
double take_over_rate(const ScheduleOptions& options, const Moment& now);

/// The rate of a step > 0.
double next_rate(const ScheduleOptions& options, const Moment& now);

} // namespace ampkit::optim
