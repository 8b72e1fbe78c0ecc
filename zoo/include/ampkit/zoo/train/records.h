#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace ampkit::zoo {

/// What one optimizer step was like.
struct StepRecord {
  int64_t step = 0; ///< counted from 1; skipped ones count
  int64_t epoch = 0; ///< counted from 1
  double loss = 0; ///< mean over the step's samples, before the update
  double learning_rate = 0;
  double scale = 1; ///< by which this step's loss was multiplied
  bool skipped = false; ///< something was inf or NaN; nothing was updated
  int64_t skipped_total = 0; ///< since the run began
  /// Skipped for what no loss scale could have cured; see GradScalerOptions.
  bool fault = false;
  int64_t faults_total = 0; ///< since the run began
  std::string why; ///< of a skipped step: StepResult::describe()
  /// Of optimizer.norm_type, unscaled, before clipping; NaN if skipped.
  double grad_norm = 0;
  /// Largest magnitude of a gradient, unscaled, before clipping; NaN or inf if
  /// there is one; NaN if diagnose.flight_steps is 0.
  double grad_max = 0;
  /// Elements of the gradients of a skipped step that are inf or NaN.
  int64_t bad_values = 0;
  /// Share of the last 100 steps whose loss or gradient was not finite.
  double nan_rate = 0;
  double samples_per_second = 0;
  double memory_mb = 0; ///< resident memory of the process, in 10^6 bytes
};

/// What an evaluation found.
struct EvalRecord {
  int64_t step = 0; ///< optimizer steps before it
  int64_t epoch = 0; ///< epochs before it, the last one maybe not whole
  double loss = 0;
  double accuracy = 0; ///< share of samples whose largest logit is right
  /// The same with the averaged weights, if there are any.
  std::optional<double> ema_loss;
  std::optional<double> ema_accuracy;
  int64_t samples = 0;
  double seconds = 0;

  /// The better of the two accuracies: by it the best checkpoint is chosen.
  double best_accuracy() const {
    return ema_accuracy ? std::max(accuracy, *ema_accuracy) : accuracy;
  }
};

} // namespace ampkit::zoo
