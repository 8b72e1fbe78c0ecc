// Learning-rate schedules on the settings of test_schedules.py.

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/schedule.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

optim::RampShape shape_of(const json& name) {
  if (name == "cosine") {
    return optim::RampShape::cosine;
  }
  return name == "linear" ? optim::RampShape::linear
                          : optim::RampShape::one_minus_sqrt;
}

optim::ScheduleOptions torch_options(const json& o) {
  if (o["kind"] == "ConstantLR") {
    return optim::ConstantLROptions{
        .factor = o["factor"], .total_iters = o["total_iters"]};
  }
  if (o["kind"] == "LinearLR") {
    return optim::LinearLROptions{
        .start_factor = o["start_factor"],
        .end_factor = o["end_factor"],
        .total_iters = o["total_iters"]};
  }
  if (o["kind"] == "CosineAnnealingLR") {
    return optim::CosineAnnealingLROptions{
        .T_max = o["T_max"], .eta_min = o["eta_min"]};
  }
  if (o["kind"] == "StepLR") {
    return optim::StepLROptions{
        .step_size = o["step_size"], .gamma = o["gamma"]};
  }
  if (o["kind"] == "MultiStepLR") {
    return optim::MultiStepLROptions{
        .milestones = o["milestones"].get<std::vector<int64_t>>(),
        .gamma = o["gamma"]};
  }
  if (o["kind"] == "CosineAnnealingWarmRestarts") {
    return optim::CosineAnnealingWarmRestartsOptions{
        .T_0 = o["T_0"], .T_mult = o["T_mult"], .eta_min = o["eta_min"]};
  }
  return optim::PolynomialLROptions{
      .total_iters = o["total_iters"], .power = o["power"]};
}

optim::ScheduleOptions schedule_options(const json& o) {
  if (o["kind"] == "WarmupPolynomialLR") {
    return optim::WarmupPolynomialLROptions{
        .warmup_steps = o["num_warmup_steps"],
        .total_steps = o["num_training_steps"],
        .lr_end = o["lr_end"],
        .power = o["power"],
        .lr_init = o["lr_init"]};
  }
  if (o["kind"] == "WarmupStableDecayLR") {
    return optim::WarmupStableDecayLROptions{
        .warmup_steps = o["num_warmup_steps"],
        .stable_steps = o["num_stable_steps"],
        .decay_steps = o["num_decay_steps"],
        .warmup = shape_of(o["warmup_type"]),
        .decay = shape_of(o["decay_type"]),
        .min_lr_ratio = o["min_lr_ratio"],
        .num_cycles = o["num_cycles"]};
  }
  if (o["kind"] == "SWALR") {
    return optim::SWALROptions{
        .swa_lr = o["swa_lr"].get<std::vector<double>>(),
        .anneal_epochs = o["anneal_epochs"],
        .cosine = o["anneal_strategy"] == "cos"};
  }
  return torch_options(o);
}

std::vector<optim::ScheduleOptions> parts_of(const json& o) {
  std::vector<optim::ScheduleOptions> parts;
  for (const json& part : o["schedules"]) {
    parts.push_back(schedule_options(part));
  }
  return parts;
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer, const optim::ConstantLROptions& o) {
  return std::make_unique<optim::ConstantLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer, const optim::LinearLROptions& o) {
  return std::make_unique<optim::LinearLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer,
    const optim::CosineAnnealingLROptions& o) {
  return std::make_unique<optim::CosineAnnealingLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer, const optim::StepLROptions& o) {
  return std::make_unique<optim::StepLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer, const optim::MultiStepLROptions& o) {
  return std::make_unique<optim::MultiStepLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer,
    const optim::CosineAnnealingWarmRestartsOptions& o) {
  return std::make_unique<optim::CosineAnnealingWarmRestarts>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer, const optim::PolynomialLROptions& o) {
  return std::make_unique<optim::PolynomialLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer,
    const optim::WarmupPolynomialLROptions& o) {
  return std::make_unique<optim::WarmupPolynomialLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer,
    const optim::WarmupStableDecayLROptions& o) {
  return std::make_unique<optim::WarmupStableDecayLR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> single(
    torch::optim::Optimizer& optimizer, const optim::SWALROptions& o) {
  return std::make_unique<optim::SWALR>(optimizer, o);
}

std::unique_ptr<optim::LRScheduler> one_cycle(
    torch::optim::Optimizer& optimizer, const json& o) {
  return std::make_unique<optim::OneCycleLR>(
      optimizer,
      optim::OneCycleLROptions{
          .max_lr = o["max_lr"].get<std::vector<double>>(),
          .total_steps = o["total_steps"],
          .pct_start = o["pct_start"],
          .cosine = o["anneal_strategy"] == "cos",
          .cycle_momentum = o["cycle_momentum"],
          .base_momentum = o["base_momentum"],
          .max_momentum = o["max_momentum"],
          .div_factor = o["div_factor"],
          .final_div_factor = o["final_div_factor"],
          .three_phase = o["three_phase"]});
}

std::unique_ptr<optim::LRScheduler> make_schedule(
    torch::optim::Optimizer& optimizer, const json& o) {
  const std::string kind = o["kind"];
  if (kind == "OneCycleLR") {
    return one_cycle(optimizer, o);
  }
  if (kind == "WarmupCosineLR") {
    return std::make_unique<optim::WarmupCosineLR>(
        optimizer,
        optim::WarmupCosineLROptions{
            .warmup_steps = o["warmup_steps"],
            .total_steps = o["total_steps"],
            .start_factor = o["start_factor"],
            .eta_min = o["eta_min"]});
  }
  if (kind == "SequentialLR") {
    return std::make_unique<optim::SequentialLR>(
        optimizer, parts_of(o), o["milestones"].get<std::vector<int64_t>>());
  }
  if (kind == "ChainedScheduler") {
    return std::make_unique<optim::ChainedScheduler>(optimizer, parts_of(o));
  }
  return std::visit(
      [&](const auto& options) { return single(optimizer, options); },
      schedule_options(o));
}

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const json& lrs) {
  std::vector<optim::ParamGroup<Options>> groups;
  for (const double lr : lrs) {
    groups.push_back({{torch::zeros({1}).requires_grad_()}, {.lr = lr}});
  }
  return std::make_unique<Optimizer>(std::move(groups));
}

double momentum_of(torch::optim::Optimizer& optimizer, size_t group) {
  auto& options = optimizer.param_groups()[group].options();
  if (const auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) {
    return sgd->momentum();
  }
  return std::get<0>(
      dynamic_cast<torch::optim::AdamWOptions&>(options).betas());
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const json& task) {
  return task["optimizer"] == "SGD"
             ? make_optimizer<optim::SGD, optim::SGDOptions>(task["lrs"])
             : make_optimizer<optim::AdamW, optim::AdamWOptions>(task["lrs"]);
}

/// ARGUMENTS: task.json result.json. The result has the rates and momentums of
/// all groups at each step.
void run_schedules(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  const auto optimizer = optimizer_of(task);
  const auto schedule = make_schedule(*optimizer, task["schedule"]);
  json rates = json::array();
  json momentums = json::array();
  for (int64_t step = 0; step <= task["steps"].get<int64_t>(); ++step) {
    if (step > 0) {
      schedule->step();
    }
    rates.push_back(schedule->last_lr());
    json now = json::array();
    for (size_t g = 0; g < task["lrs"].size(); ++g) {
      now.push_back(momentum_of(*optimizer, g));
    }
    momentums.push_back(now);
  }
  write_json(args[1], {{"rates", rates}, {"momentums", momentums}});
}

/// The same for a ReduceLROnPlateau on the task's metrics; "nan" is a NaN.
void run_plateau(std::span<const std::string> args) {
  using Options = optim::ReduceLROnPlateauOptions;
  const json task = read_json(args[0]);
  const json& o = task["schedule"];
  const auto optimizer = optimizer_of(task);
  optim::ReduceLROnPlateau schedule(
      *optimizer,
      {.mode = o["mode"] == "min" ? Options::Mode::min : Options::Mode::max,
       .factor = o["factor"],
       .patience = o["patience"],
       .threshold = o["threshold"],
       .threshold_mode = o["threshold_mode"] == "rel"
                             ? Options::ThresholdMode::rel
                             : Options::ThresholdMode::abs,
       .cooldown = o["cooldown"],
       .min_lr = o["min_lr"].get<std::vector<double>>(),
       .eps = o["eps"]});
  json rates = json::array();
  for (const json& metric : task["metrics"]) {
    schedule.step(
        metric.is_string() ? std::numeric_limits<double>::quiet_NaN()
                           : metric.get<double>());
    rates.push_back(schedule.last_lr());
  }
  write_json(args[1], {{"rates", rates}});
}

const Command kSchedule{"schedule", run_schedules};
const Command kPlateau{"plateau", run_plateau};

} // namespace
} // namespace ampkit::oracle
