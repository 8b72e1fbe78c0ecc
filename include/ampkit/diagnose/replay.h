#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/step_result.h>
#include <ampkit/diagnose/capsule.h>
#include <ampkit/diagnose/watch.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::diagnose {

/// What a step that is done again gives.
struct ReplayedStep {
  at::Tensor loss;
  std::optional<StepResult> result;
};

/// How a program does a step again.
struct ReplayCallbacks {
  /// Puts back what the program's state_dict() gave.
  std::function<void(const io::StateDict& state)> restore;
  /// The step itself, as in training: forward, backward, update. `batches` are
  /// Capsule::batches, of which `step` knows already; tell it of micro-batches
  /// and of the scaler.
  std::function<ReplayedStep(
      Watch::Step& step, const std::vector<io::StateDict>& batches)>
      run;
};

/// What came of replay().
struct AMPKIT_API ReplayResult {
  /// Where the first bad value was born; none: there is none, or a scaler
  /// handles it.
  std::optional<Finding> finding;
  /// Overflows that the scaler handles.
  int64_t handled_overflows = 0;

  at::Tensor loss;
  std::string outcome; ///< StepResult::describe()
  double grad_norm = std::numeric_limits<double>::quiet_NaN();

  /// Whether loss, outcome and norm are, bit for bit, those of the capsule.
  bool identical = false;
  /// What differs from when it was saved: results, and what may be the reason
  /// (versions, number of threads), one a line.
  std::vector<std::string> differences;
};

/// Does the step of `capsule` again, under a Watch: with the same weights,
/// batch, random numbers and number of threads.
///
///     const auto capsule = ampkit::diagnose::load_capsule("run/capsules");
///     const auto replay = ampkit::diagnose::replay(
///         capsule, *model,
///         {.restore = [&](const auto& state) { run.load_state_dict(state); },
///          .run = [&](auto& step, const auto& batches) { ... }});
///     if (replay.finding) {
///       std::cout << to_string(*replay.finding);
///     }
///
/// The program's random generators and number of threads are afterwards what
/// they were; model and optimizer are as the step left them. What the callbacks
/// throw passes through. Options: `interval` must be 1; `rank` is the
/// capsule's.
AMPKIT_API ReplayResult replay(
    const Capsule& capsule,
    const torch::nn::Module& model,
    const ReplayCallbacks& callbacks,
    const WatchOptions& options = {});

/// "loss nan, skipped: the loss is not finite; the same bits as then"
AMPKIT_API std::string describe_outcome(const ReplayResult& result);

} // namespace ampkit::diagnose
