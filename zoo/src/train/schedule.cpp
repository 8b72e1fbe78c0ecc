#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ampkit::zoo {
namespace {

// Where a rise begins, as a share of the highest rate.
constexpr double kStart = 1e-3;

std::unique_ptr<optim::LRScheduler> one_cycle(
    const RunConfig& config,
    torch::optim::Optimizer& optimizer,
    int64_t total_steps) {
  optim::OneCycleLROptions options{
      .max_lr = {config.optimizer.lr},
      .total_steps = total_steps,
      .pct_start = config.schedule.warmup,
      .cycle_momentum = config.schedule.cycle_momentum};
  options.final_div_factor =
      1 / (options.div_factor * config.schedule.final_factor);
  return std::make_unique<optim::OneCycleLR>(optimizer, options);
}

} // namespace

std::unique_ptr<optim::LRScheduler> make_schedule(
    const RunConfig& config,
    torch::optim::Optimizer& optimizer,
    int64_t total_steps) {
  const auto& schedule = config.schedule;
  // The shortest possible run still has a step to rise and one to fall.
  total_steps = std::max<int64_t>(2, total_steps);
  if (schedule.name == "one-cycle") {
    return one_cycle(config, optimizer, total_steps);
  }
  const auto rise =
      std::llround(schedule.warmup * static_cast<double>(total_steps));
  const auto warmup = std::min<int64_t>(total_steps - 1, rise);
  if (schedule.name == "cosine") {
    return std::make_unique<optim::WarmupCosineLR>(
        optimizer,
        optim::WarmupCosineLROptions{
            .warmup_steps = warmup,
            .total_steps = total_steps,
            .eta_min = config.optimizer.lr * schedule.final_factor});
  }
  const double last = schedule.name == "linear" ? schedule.final_factor : 1.0;
  std::vector<optim::ScheduleOptions> parts;
  std::vector<int64_t> milestones;
  if (warmup > 0) {
    parts.emplace_back(optim::LinearLROptions{
        .start_factor = kStart, .end_factor = 1.0, .total_iters = warmup});
    milestones.push_back(warmup);
  }
  parts.emplace_back(optim::LinearLROptions{
      .start_factor = 1.0,
      .end_factor = last,
      .total_iters = total_steps - warmup});
  return std::make_unique<optim::SequentialLR>(
      optimizer, std::move(parts), std::move(milestones));
}

} // namespace ampkit::zoo
