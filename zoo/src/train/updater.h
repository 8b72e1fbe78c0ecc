#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/precision.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/optim/fused_optimizer.h>
#include <ampkit/zoo/train/config.h>

#include "train/schedule.h"

namespace ampkit::zoo {

/// From gradients to new weights: the optimizers of a run with their learning
/// rates and the clipping. There is one optimizer; muon has an adamw beside it.
class Updater {
 public:
  /// Throws ConfigError for values that do not go together or with `module`.
  Updater(
      const RunConfig& config,
      const Precision& precision,
      const torch::nn::Module& module,
      int64_t total_steps);

  /// Steps all optimizers or none, clears the gradients. Update the scaler
  /// afterwards.
  StepResult step(GradScaler& scaler);

  /// Moves the learning rates on unless the step was skipped; says whether.
  /// Waits for the device.
  bool advance(const StepResult& result);

  /// Takes the loss of an evaluation.
  void evaluated(double loss);

  /// Of the first group of the first optimizer.
  double learning_rate() const;

  /// Adds its entries to `state`.
  void save_to(io::StateDict& state) const;
  /// Takes them back. Throws c10::Error with what does not fit.
  void load_from(const io::StateDict& state);

 private:
  struct Part {
    std::string prefix; // of the names in the state
    std::unique_ptr<optim::FusedOptimizer> optimizer;
    Schedule schedule;
  };

  StepOptions clipping_;
  std::vector<Part> parts_;
};

} // namespace ampkit::zoo
