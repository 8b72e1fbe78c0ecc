#include <ampkit/optim/schedule_chain.h>

#include <algorithm>
#include <string>
#include <utility>

#include <c10/util/Exception.h>

#include "schedule_part.h"

namespace ampkit::optim {

SequentialLR::SequentialLR(
    torch::optim::Optimizer& optimizer,
    std::vector<ScheduleOptions> schedules,
    std::vector<int64_t> milestones)
    : LRScheduler(optimizer),
      schedules_(std::move(schedules)),
      milestones_(std::move(milestones)) {
  TORCH_CHECK_VALUE(
      milestones_.size() + 1 == schedules_.size(),
      "SequentialLR: there must be one milestone fewer than schedules, got ",
      milestones_.size(),
      " for ",
      schedules_.size());
  for (size_t i = 0; i < milestones_.size(); ++i) {
    TORCH_CHECK_VALUE(
        milestones_[i] >= (i == 0 ? 0 : milestones_[i - 1] + 1),
        "SequentialLR: milestones must increase from >= 0, got ",
        milestones_[i]);
  }
  for (const ScheduleOptions& schedule : schedules_) {
    check_options(schedule, base_lrs());
  }
  begin();
}

double SequentialLR::rate(size_t g, int64_t step, double lr) const {
  const auto after = std::ranges::upper_bound(milestones_, step);
  const auto index = static_cast<size_t>(after - milestones_.begin());
  const int64_t start = index == 0 ? 0 : milestones_[index - 1];
  const Moment now{g, step - start, lr, base_lrs()[g]};
  const ScheduleOptions& schedule = schedules_[index];
  if (step == 0) {
    return first_rate(schedule, now);
  }
  return step == start ? take_over_rate(schedule, now)
                       : next_rate(schedule, now);
}

io::StateDict SequentialLR::settings() const {
  auto state = settings_of(schedules_);
  for (size_t i = 0; i < milestones_.size(); ++i) {
    state.set("milestone." + std::to_string(i), milestones_[i]);
  }
  return state;
}

ChainedScheduler::ChainedScheduler(
    torch::optim::Optimizer& optimizer, std::vector<ScheduleOptions> schedules)
    : LRScheduler(optimizer), schedules_(std::move(schedules)) {
  TORCH_CHECK_VALUE(
      !schedules_.empty(),
      "ChainedScheduler: there must be at least one schedule, got 0");
  for (const ScheduleOptions& schedule : schedules_) {
    check_options(schedule, base_lrs());
  }
  begin();
}

double ChainedScheduler::rate(size_t g, int64_t step, double lr) const {
  for (const ScheduleOptions& schedule : schedules_) {
    const Moment now{g, step, lr, base_lrs()[g]};
    lr = step == 0 ? first_rate(schedule, now) : next_rate(schedule, now);
  }
  return lr;
}

io::StateDict ChainedScheduler::settings() const {
  return settings_of(schedules_);
}

} // namespace ampkit::optim
