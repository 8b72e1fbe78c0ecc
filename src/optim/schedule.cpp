#include <ampkit/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <sstream>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

namespace ampkit::optim {
namespace {

constexpr double kPi = std::numbers::pi;

std::vector<double> current_lrs(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

void set_lrs(
    torch::optim::Optimizer& optimizer, const std::vector<double>& rates) {
  for (size_t g = 0; g < rates.size(); ++g) {
    optimizer.param_groups()[g].options().set_lr(rates[g]);
  }
}

void check_factor(
    const char* who, const char* field, double value, bool zero_allowed) {
  TORCH_CHECK_VALUE(
      value <= 1 && (value > 0 || (zero_allowed && value == 0)),
      who,
      ": ",
      field,
      " must be in ",
      zero_allowed ? "[0, 1]" : "(0, 1]",
      ", got ",
      value);
}

void check_at_least(
    const char* who, const char* field, int64_t value, int64_t low) {
  TORCH_CHECK_VALUE(
      value >= low, who, ": ", field, " must be >= ", low, ", got ", value);
}

// For each kind of schedule: check(), the rate of its own step 0 when it begins
// (begin) and when it takes over from another (take_over), the next rate
// (advance), and the settings for a state dict. The arithmetic is in Python's
// order.

void check(const ConstantLROptions& o) {
  check_factor("ConstantLR", "factor", o.factor, /*zero_allowed=*/true);
  check_at_least("ConstantLR", "total_iters", o.total_iters, 0);
}

double begin(const ConstantLROptions& o, double lr) {
  return lr * o.factor;
}

double take_over(const ConstantLROptions& o, double base) {
  return base * (o.factor + (0 >= o.total_iters ? 1 - o.factor : 0.0));
}

double advance(
    const ConstantLROptions& o, int64_t step, double lr, double /*base*/) {
  return step != o.total_iters ? lr : lr * (1.0 / o.factor);
}

void put(const ConstantLROptions& o, io::StateDict& state) {
  state.set("kind", "ConstantLR");
  state.set("factor", o.factor);
  state.set("total_iters", o.total_iters);
}

void check(const LinearLROptions& o) {
  check_factor("LinearLR", "start_factor", o.start_factor, false);
  check_factor("LinearLR", "end_factor", o.end_factor, true);
  check_at_least("LinearLR", "total_iters", o.total_iters, 0);
}

double begin(const LinearLROptions& o, double lr) {
  return lr * o.start_factor;
}

double take_over(const LinearLROptions& o, double base) {
  return base * (o.start_factor + (o.end_factor - o.start_factor) * 0 /
                                      static_cast<double>(o.total_iters));
}

double advance(
    const LinearLROptions& o, int64_t step, double lr, double /*base*/) {
  if (step > o.total_iters) {
    return lr;
  }
  const double rise = o.end_factor - o.start_factor;
  return lr *
         (1.0 + rise / (static_cast<double>(o.total_iters) * o.start_factor +
                        static_cast<double>(step - 1) * rise));
}

void put(const LinearLROptions& o, io::StateDict& state) {
  state.set("kind", "LinearLR");
  state.set("start_factor", o.start_factor);
  state.set("end_factor", o.end_factor);
  state.set("total_iters", o.total_iters);
}

void check(const CosineAnnealingLROptions& o) {
  check_at_least("CosineAnnealingLR", "T_max", o.T_max, 1);
}

double begin(const CosineAnnealingLROptions&, double lr) {
  return lr;
}

double take_over(const CosineAnnealingLROptions& o, double base) {
  return o.eta_min + (base - o.eta_min) * (1 + std::cos(0.0)) / 2;
}

double advance(
    const CosineAnnealingLROptions& o, int64_t step, double lr, double base) {
  const auto period = static_cast<double>(o.T_max);
  if ((step - 1 - o.T_max) % (2 * o.T_max) == 0) {
    // The step before was at the bottom, where the other formula divides by 0.
    return lr + (base - o.eta_min) * (1 - std::cos(kPi / period)) / 2;
  }
  return (1 + std::cos(kPi * static_cast<double>(step) / period)) /
             (1 + std::cos(kPi * static_cast<double>(step - 1) / period)) *
             (lr - o.eta_min) +
         o.eta_min;
}

void put(const CosineAnnealingLROptions& o, io::StateDict& state) {
  state.set("kind", "CosineAnnealingLR");
  state.set("T_max", o.T_max);
  state.set("eta_min", o.eta_min);
}

/// A state dict's entries as one text, to compare two of them: every bit of a
/// number shows.
std::string text_of(const io::StateDict& state) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  for (const auto& [name, value] : state.entries()) {
    text << (text.tellp() > 0 ? ", " : "") << name << " = ";
    if (const auto* number = std::get_if<double>(&value)) {
      text << *number;
    } else {
      text << io::describe(value);
    }
  }
  return text.str();
}

std::vector<double> reals(
    const io::StateDict& state, const std::string& name, size_t count) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(state.real(name + "." + std::to_string(i)));
  }
  return values;
}

void set_reals(
    io::StateDict& state,
    const std::string& name,
    const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    state.set(name + "." + std::to_string(i), values[i]);
  }
}

} // namespace

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
  auto rates = current_lrs(*optimizer_);
  TORCH_CHECK(
      rates.size() == base_lrs_.size(),
      kind(),
      "::step: the optimizer has ",
      rates.size(),
      " parameter groups, it had ",
      base_lrs_.size(),
      "; make the schedule after adding groups");
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
  io::StateDict state;
  state.set("schedule", kind());
  state.set_all("settings", settings());
  state.set("groups", static_cast<int64_t>(base_lrs_.size()));
  state.set("steps", steps_);
  set_reals(state, "base_lr", base_lrs_);
  set_reals(state, "last_lr", last_lr_);
  return state;
}

void LRScheduler::check_state(const io::StateDict& state) const {
  TORCH_CHECK(
      state.text("schedule") == kind(),
      kind(),
      "::load_state_dict: the state is of a ",
      state.text("schedule"));
  const auto saved = text_of(state.subset("settings"));
  TORCH_CHECK(
      saved == text_of(settings()),
      kind(),
      "::load_state_dict: the state was saved with the settings ",
      saved,
      "; these are ",
      text_of(settings()));
  const auto groups = static_cast<int64_t>(base_lrs_.size());
  TORCH_CHECK(
      state.integer("groups") == groups,
      kind(),
      "::load_state_dict: the state has ",
      state.integer("groups"),
      " groups, the optimizer ",
      groups);
  check_step(state.integer("steps"));
}

void LRScheduler::load_state_dict(const io::StateDict& state) {
  check_state(state);
  auto base_lrs = reals(state, "base_lr", base_lrs_.size());
  auto last_lr = reals(state, "last_lr", base_lrs_.size());
  steps_ = state.integer("steps");
  base_lrs_ = std::move(base_lrs);
  last_lr_ = std::move(last_lr);
  set_lrs(*optimizer_, last_lr_);
  apply_extras(steps_);
}

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
    std::visit([](const auto& options) { check(options); }, schedule);
  }
  begin();
}

double SequentialLR::rate(size_t g, int64_t step, double lr) const {
  const auto after = std::ranges::upper_bound(milestones_, step);
  const auto index = static_cast<size_t>(after - milestones_.begin());
  const int64_t start = index == 0 ? 0 : milestones_[index - 1];
  return std::visit(
      [&](const auto& options) {
        if (step == 0) {
          return optim::begin(options, lr);
        }
        return step == start
                   ? take_over(options, base_lrs()[g])
                   : advance(options, step - start, lr, base_lrs()[g]);
      },
      schedules_[index]);
}

io::StateDict SequentialLR::settings() const {
  io::StateDict state;
  for (size_t i = 0; i < schedules_.size(); ++i) {
    io::StateDict part;
    std::visit([&](const auto& options) { put(options, part); }, schedules_[i]);
    state.set_all(std::to_string(i), part);
  }
  for (size_t i = 0; i < milestones_.size(); ++i) {
    state.set("milestone." + std::to_string(i), milestones_[i]);
  }
  return state;
}

ConstantLR::ConstantLR(
    torch::optim::Optimizer& optimizer, const ConstantLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

LinearLR::LinearLR(
    torch::optim::Optimizer& optimizer, const LinearLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

CosineAnnealingLR::CosineAnnealingLR(
    torch::optim::Optimizer& optimizer, const CosineAnnealingLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

namespace {

std::vector<ScheduleOptions> parts_of(const WarmupCosineLROptions& o) {
  check_at_least("WarmupCosineLR", "warmup_steps", o.warmup_steps, 0);
  check_at_least(
      "WarmupCosineLR", "total_steps", o.total_steps, o.warmup_steps + 1);
  return {
      LinearLROptions{
          .start_factor = o.start_factor, .total_iters = o.warmup_steps},
      CosineAnnealingLROptions{
          .T_max = o.total_steps - o.warmup_steps, .eta_min = o.eta_min}};
}

} // namespace

WarmupCosineLR::WarmupCosineLR(
    torch::optim::Optimizer& optimizer, const WarmupCosineLROptions& options)
    : SequentialLR(optimizer, parts_of(options), {options.warmup_steps}),
      total_steps_(options.total_steps) {}

double WarmupCosineLR::rate(size_t g, int64_t step, double lr) const {
  return step > total_steps_ ? lr : SequentialLR::rate(g, step, lr);
}

} // namespace ampkit::optim
