#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/diagnose/watch.h>
#include <torch/torch.h>

#include "diagnose/small_nets.h"

namespace ampkit::diagnose {

/// A short training run that is watched.
struct Trial {
  at::ScalarType dtype = at::kFloat; ///< of an autocast region; Float: none
  at::Tensor input; ///< floating point or tokens
  std::function<at::Tensor(const at::Tensor&)> loss;
  std::shared_ptr<torch::optim::Optimizer> optimizer; ///< null: no updates
  std::optional<GradScalerOptions> scaler;
  int steps = 1;
  int64_t handled = 0; ///< overflows, when it is done
};

/// While true, trials run in float32 whatever they say.
inline bool& all_in_float32() {
  static bool on = false;
  return on;
}

/// The first finding of the run.
inline std::optional<Finding> run_trial(
    const torch::nn::Module& net,
    Trial& trial,
    const WatchOptions& options = {}) {
  Watch watch(net, options);
  std::optional<GradScaler> scaler;
  if (trial.scaler.has_value()) {
    scaler.emplace(*trial.scaler);
  }
  std::optional<Finding> finding;
  for (int i = 0; i < trial.steps && !finding.has_value(); ++i) {
    auto step = watch.step();
    step.input("batch", trial.input);
    at::Tensor loss;
    {
      std::optional<Autocast> autocast;
      if (trial.dtype != at::kFloat && !all_in_float32()) {
        autocast.emplace(torch::kCPU, trial.dtype);
      }
      loss = trial.loss(trial.input);
    }
    (scaler ? scaler->scale(loss) : loss).backward();
    if (trial.optimizer != nullptr && scaler.has_value()) {
      step.scaled(*scaler, scaler->step(*trial.optimizer));
      scaler->update();
    } else if (trial.optimizer != nullptr) {
      trial.optimizer->step();
    }
    finding = step.finish();
    if (trial.optimizer != nullptr) {
      trial.optimizer->zero_grad();
    }
  }
  trial.handled = watch.handled_overflows();
  return finding;
}

} // namespace ampkit::diagnose
