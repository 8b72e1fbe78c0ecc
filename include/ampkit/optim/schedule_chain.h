#pragma once

#include <cstdint>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/optim/lr_scheduler.h>
#include <ampkit/optim/schedule_options.h>

namespace ampkit::optim {

/// torch.optim.lr_scheduler.SequentialLR: schedules one after the other. Each
/// takes over at its milestone with the base rate, an SWALR with the present
/// one.
///
///     SequentialLR schedule(
///         optimizer,
///         {LinearLROptions{.total_iters = 500}, StepLROptions{.step_size =
///         90}}, {500});
class AMPKIT_API SequentialLR : public LRScheduler {
 public:
  /// `milestones`: the steps at which the second, third, ... schedule begins,
  /// increasing, >= 0. Throws c10::ValueError for options out of range, or
  /// unless there is one milestone fewer than schedules.
  SequentialLR(
      torch::optim::Optimizer& optimizer,
      std::vector<ScheduleOptions> schedules,
      std::vector<int64_t> milestones);

 protected:
  double rate(size_t g, int64_t step, double lr) const override;
  const char* kind() const override { return "SequentialLR"; }
  io::StateDict settings() const override;

 private:
  std::vector<ScheduleOptions> schedules_;
  std::vector<int64_t> milestones_;
};

/// torch.optim.lr_scheduler.ChainedScheduler: schedules all at once, each on
/// the rate that the one before it gave, so that their factors multiply.
class AMPKIT_API ChainedScheduler : public LRScheduler {
 public:
  /// Throws c10::ValueError for options out of range, or if there is no
  /// schedule.
  ChainedScheduler(
      torch::optim::Optimizer& optimizer,
      std::vector<ScheduleOptions> schedules);

 protected:
  double rate(size_t g, int64_t step, double lr) const override;
  const char* kind() const override { return "ChainedScheduler"; }
  io::StateDict settings() const override;

 private:
  std::vector<ScheduleOptions> schedules_;
};

} // namespace ampkit::optim
