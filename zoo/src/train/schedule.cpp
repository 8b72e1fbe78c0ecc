#include "train/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <torch/optim/optimizer.h>

namespace ampkit::zoo {
namespace {

// Where a rise begins, as a share of the highest rate.
constexpr double kStart = 1e-3;

// What a schedule is made from, in steps.
struct Lengths {
  const ScheduleConfig& config;
  double lr; // the highest
  int64_t total;
  int64_t warmup;

  int64_t share(double part) const {
    return std::llround(part * static_cast<double>(total));
  }
  int64_t after_warmup() const { return total - warmup; }
  double lowest() const { return lr * config.final_factor; }
};

using Course = optim::ScheduleOptions;

Course constant(const Lengths& l) {
  return optim::LinearLROptions{
      .start_factor = 1, .end_factor = 1, .total_iters = l.after_warmup()};
}

Course linear(const Lengths& l) {
  return optim::LinearLROptions{
      .start_factor = 1,
      .end_factor = l.config.final_factor,
      .total_iters = l.after_warmup()};
}

Course step(const Lengths& l) {
  return optim::StepLROptions{
      .step_size = std::max<int64_t>(1, l.share(l.config.step_size)),
      .gamma = l.config.gamma};
}

Course multi_step(const Lengths& l) {
  optim::MultiStepLROptions options{.gamma = l.config.gamma};
  for (const double milestone : l.config.milestones) {
    const auto falls = l.share(milestone) - l.warmup;
    if (falls <= 0) {
      throw ConfigError(
          {__func__, __FILE__, __LINE__},
          c10::str(
              "schedule.milestones: must lie after schedule.warmup = ",
              l.config.warmup,
              ", got ",
              milestone));
    }
    options.milestones.push_back(falls);
  }
  return options;
}

Course cosine_restarts(const Lengths& l) {
  return optim::CosineAnnealingWarmRestartsOptions{
      .T_0 = std::max<int64_t>(1, l.share(l.config.period)),
      .T_mult = l.config.period_factor,
      .eta_min = l.lowest()};
}

Course polynomial(const Lengths& l) {
  return optim::WarmupPolynomialLROptions{
      .total_steps = l.after_warmup(),
      .lr_end = l.lowest(),
      .power = l.config.power};
}

Course stable_and_decay(const Lengths& l) {
  const auto decay = std::min(l.share(l.config.decay), l.after_warmup());
  const auto& shape = l.config.decay_shape;
  return optim::WarmupStableDecayLROptions{
      .stable_steps = l.after_warmup() - decay,
      .decay_steps = decay,
      .decay = shape == "linear"   ? optim::RampShape::linear
               : shape == "cosine" ? optim::RampShape::cosine
                                   : optim::RampShape::one_minus_sqrt,
      .min_lr_ratio = l.config.final_factor};
}

// Courses that follow a warm-up; "plateau" is that of the steps.
using Maker = Course (*)(const Lengths&);
constexpr std::array<std::pair<const char*, Maker>, 8> kCourses{
    {{"constant", constant},
     {"cosine-restarts", cosine_restarts},
     {"linear", linear},
     {"multi-step", multi_step},
     {"plateau", constant},
     {"polynomial", polynomial},
     {"step", step},
     {"warmup-stable-decay", stable_and_decay}}};

std::unique_ptr<optim::LRScheduler> one_cycle(
    const Lengths& l, torch::optim::Optimizer& optimizer) {
  optim::OneCycleLROptions options{
      .max_lr = {l.lr},
      .total_steps = l.total,
      .pct_start = l.config.warmup,
      .cycle_momentum = l.config.cycle_momentum};
  options.final_div_factor = 1 / (options.div_factor * l.config.final_factor);
  return std::make_unique<optim::OneCycleLR>(optimizer, options);
}

std::unique_ptr<optim::LRScheduler> cosine(
    const Lengths& l, torch::optim::Optimizer& optimizer) {
  return std::make_unique<optim::WarmupCosineLR>(
      optimizer,
      optim::WarmupCosineLROptions{
          .warmup_steps = l.warmup,
          .total_steps = l.total,
          .start_factor = kStart,
          .eta_min = l.lowest()});
}

std::unique_ptr<optim::LRScheduler> after_warmup(
    const Lengths& l, torch::optim::Optimizer& optimizer) {
  const auto* course = std::ranges::find_if(kCourses, [&](const auto& known) {
    return known.first == l.config.name;
  });
  TORCH_CHECK_VALUE(
      course != kCourses.end(),
      "Schedule: schedule.name must be one of ",
      c10::Join(", ", schedule_names()),
      ", got ",
      l.config.name);
  std::vector<Course> parts;
  std::vector<int64_t> milestones;
  if (l.warmup > 0) {
    parts.emplace_back(optim::LinearLROptions{
        .start_factor = kStart, .end_factor = 1, .total_iters = l.warmup});
    milestones.push_back(l.warmup);
  }
  parts.push_back(course->second(l));
  return std::make_unique<optim::SequentialLR>(
      optimizer, std::move(parts), std::move(milestones));
}

Lengths lengths_of(
    const ScheduleConfig& config,
    const torch::optim::Optimizer& optimizer,
    int64_t steps) {
  // The shortest possible run still has a step to rise and one to fall.
  const auto total = std::max<int64_t>(2, steps);
  const auto rise = std::llround(config.warmup * static_cast<double>(total));
  return {
      .config = config,
      .lr = optimizer.param_groups().front().options().get_lr(),
      .total = total,
      .warmup = std::min<int64_t>(total - 1, rise)};
}

optim::ReduceLROnPlateauOptions plateau_options(const Lengths& l) {
  return {
      .factor = l.config.gamma,
      .patience = l.config.patience,
      .threshold = l.config.threshold,
      .cooldown = l.config.cooldown,
      .min_lr = {l.lowest()}};
}

} // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names{"cosine", "one-cycle"};
  for (const auto& [name, maker] : kCourses) {
    names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

Schedule::Schedule(
    const ScheduleConfig& config,
    torch::optim::Optimizer& optimizer,
    int64_t total_steps) {
  const auto lengths = lengths_of(config, optimizer, total_steps);
  steps_ = config.name == "one-cycle" ? one_cycle(lengths, optimizer)
           : config.name == "cosine"  ? cosine(lengths, optimizer)
                                      : after_warmup(lengths, optimizer);
  if (config.name == "plateau") {
    plateau_.emplace(optimizer, plateau_options(lengths));
  }
}

void Schedule::evaluated(double loss) {
  if (plateau_) {
    plateau_->step(loss);
  }
}

io::StateDict Schedule::state_dict() const {
  io::StateDict state;
  state.set_all("schedule", steps_->state_dict());
  if (plateau_) {
    state.set_all("plateau", plateau_->state_dict());
  }
  return state;
}

void Schedule::load_state_dict(const io::StateDict& state) {
  if (plateau_) {
    plateau_->load_state_dict(state.subset("plateau"));
  }
  steps_->load_state_dict(state.subset("schedule"));
}

} // namespace ampkit::zoo
