#include <ampkit/optim/lr_scheduler.h>

#include <utility>

#include "schedule_state.h"

namespace ampkit::optim {

LRScheduler::LRScheduler(torch::optim::Optimizer& optimizer)
    : optimizer_(&optimizer),
      base_lrs_(current_lrs(optimizer)),
      last_lr_(base_lrs_) {}

void LRScheduler::begin() {
  apply(0);
}

void LRScheduler::step() {
  apply(steps_ + 1);
}

bool LRScheduler::step(const StepResult& result) {
  const bool stepped = result.stepped(); // waits for the device
  if (stepped) {
    step();
  }
  return stepped;
}

void LRScheduler::apply(int64_t step) {
  check_step(step);
  check_groups(kind(), *optimizer_, base_lrs_.size());
  auto rates = current_lrs(*optimizer_);
  for (size_t g = 0; g < rates.size(); ++g) {
    rates[g] = rate(g, step, rates[g]);
  }
  set_lrs(*optimizer_, rates);
  last_lr_ = std::move(rates);
  steps_ = step;
  apply_extras(step);
}

void LRScheduler::check_step(int64_t) const {}

void LRScheduler::apply_extras(int64_t) {}

io::StateDict LRScheduler::state_dict() const {
  auto state = schedule_header(kind(), settings(), base_lrs_.size());
  state.set("steps", steps_);
  set_reals(state, "base_lr", base_lrs_);
  set_reals(state, "last_lr", last_lr_);
  return state;
}

void LRScheduler::load_state_dict(const io::StateDict& state) {
  check_schedule_header(state, kind(), settings(), base_lrs_.size());
  const int64_t steps = state.integer("steps");
  check_step(steps);
  auto base_lrs = reals(state, "base_lr", base_lrs_.size());
  auto last_lr = reals(state, "last_lr", base_lrs_.size());
  check_groups(kind(), *optimizer_, base_lrs_.size());
  steps_ = steps;
  base_lrs_ = std::move(base_lrs);
  last_lr_ = std::move(last_lr);
  set_lrs(*optimizer_, last_lr_);
  apply_extras(steps_);
}

} // namespace ampkit::optim
