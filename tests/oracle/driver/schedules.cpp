// Learning-rate schedules on the settings of test_schedules.py.

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/schedule.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

optim::ScheduleOptions options_of(const json& o) {
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
  return optim::CosineAnnealingLROptions{
      .T_max = o["T_max"], .eta_min = o["eta_min"]};
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
    std::vector<optim::ScheduleOptions> parts;
    for (const json& part : o["schedules"]) {
      parts.push_back(options_of(part));
    }
    return std::make_unique<optim::SequentialLR>(
        optimizer, parts, o["milestones"].get<std::vector<int64_t>>());
  }
  const auto options = options_of(o);
  if (kind == "ConstantLR") {
    return std::make_unique<optim::ConstantLR>(
        optimizer, std::get<optim::ConstantLROptions>(options));
  }
  if (kind == "LinearLR") {
    return std::make_unique<optim::LinearLR>(
        optimizer, std::get<optim::LinearLROptions>(options));
  }
  return std::make_unique<optim::CosineAnnealingLR>(
      optimizer, std::get<optim::CosineAnnealingLROptions>(options));
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

/// ARGUMENTS: task.json result.json. The result has the rates and momentums of
/// all groups at each step.
void run(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  const auto optimizer =
      task["optimizer"] == "SGD"
          ? make_optimizer<optim::SGD, optim::SGDOptions>(task["lrs"])
          : make_optimizer<optim::AdamW, optim::AdamWOptions>(task["lrs"]);
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

const Command kSchedule{"schedule", run};

} // namespace
} // namespace ampkit::oracle
