#include "train/updater.h"

#include <limits>
#include <utility>

#include <torch/torch.h>

#include "train/parameters.h"
#include "train/trainer_setup.h"

namespace ampkit::zoo {
namespace {

StepOptions clipping(const OptimizerConfig& config) {
  StepOptions options{
      .max_norm = config.max_norm > 0 ? config.max_norm
                                      : std::numeric_limits<double>::infinity(),
      .norm_type = config.norm_type};
  if (config.clip_value > 0) {
    options.clip_value = config.clip_value;
  }
  if (config.clip_factor > 0) {
    options.adaptive_clip =
        AdaptiveClip{.clip_factor = config.clip_factor, .eps = config.clip_eps};
  }
  return options;
}

} // namespace

Updater::Updater(
    const RunConfig& config,
    const Precision& precision,
    const torch::nn::Module& module,
    int64_t total_steps) {
  check_together(config);
  clipping_ = clipping(config.optimizer);
  for (auto& optimizer : make_optimizers(config.optimizer, module)) {
    optimizer->keep_masters(precision.master.has_value());
    Schedule schedule(config.schedule, *optimizer, total_steps);
    parts_.push_back(
        {parts_.empty() ? "" : "adamw",
         std::move(optimizer),
         std::move(schedule)});
  }
}

StepResult Updater::step(GradScaler& scaler) {
  GradScaler::Optimizers all;
  for (const auto& part : parts_) {
    all.emplace_back(*part.optimizer);
  }
  const auto result = scaler.step_all_or_none(all, clipping_);
  for (const auto& part : parts_) {
    part.optimizer->zero_grad();
  }
  return result;
}

bool Updater::advance(const StepResult& result) {
  bool stepped = false;
  for (auto& part : parts_) {
    stepped = part.schedule.step(result);
  }
  return stepped;
}

void Updater::evaluated(double loss) {
  for (auto& part : parts_) {
    part.schedule.evaluated(loss);
  }
}

double Updater::learning_rate() const {
  return parts_.front().optimizer->param_groups().front().options().get_lr();
}

void Updater::save_to(io::StateDict& state) const {
  for (const auto& part : parts_) {
    io::StateDict own = part.schedule.state_dict();
    own.set_all("optimizer", part.optimizer->state_dict());
    if (!part.prefix.empty()) {
      state.set_all(part.prefix, own);
      continue;
    }
    for (const auto& [name, value] : own.entries()) {
      state.set(name, value);
    }
  }
}

void Updater::load_from(const io::StateDict& state) {
  for (auto& part : parts_) {
    const auto own = part.prefix.empty() ? state : state.subset(part.prefix);
    part.schedule.load_state_dict(own);
    // Last: its rates are those of schedule and plateau together.
    part.optimizer->load_state_dict(own.subset("optimizer"));
  }
}

} // namespace ampkit::zoo
