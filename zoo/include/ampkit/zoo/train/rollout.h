#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/records.h>
#include <ampkit/zoo/train/trainer.h>

namespace ampkit::zoo {

/// What a low-precision run may do and still pass.
struct RolloutBounds {
  /// |loss - FP32's| / FP32's, of the means over the last quarter; > 0.
  double loss = 0.05;
  /// The median ratio of gradient norms to FP32's lies in [1 / x, x]; >= 1.
  double grad_norm = 2.0;
  /// Share of steps whose loss or gradient is not finite; in [0, 1]. The first
  /// steps of fp16, in which the scale falls to where it belongs, count.
  double nan_rate = 0.1;
};

/// One thing that was looked at.
struct RolloutCheck {
  std::string name; ///< "loss", "gradient norm", "scale", "NaN rate"
  bool pass = true;
  std::string text; ///< what was found and what was asked for
};

/// Both runs and what came of comparing them.
struct AMPKIT_API RolloutResult {
  std::vector<StepRecord> reference; ///< in FP32
  std::vector<StepRecord> low;
  std::vector<RolloutCheck> checks;
  bool pass() const;
};

/// Compares two runs over the same steps. `min_scale`: the scaler's floor.
/// Throws c10::ValueError if a bound is out of range or either run is empty.
AMPKIT_API std::vector<RolloutCheck> check_rollout(
    const std::vector<StepRecord>& reference,
    const std::vector<StepRecord>& low,
    double min_scale,
    const RolloutBounds& bounds = {});

/// The first `steps` steps of the run of `config`, all if it has fewer, in FP32
/// and as it says, from the same weights on the same batches, under the
/// schedule of the whole run. Writes no files. `on_step` gets each record;
/// `should_stop` is asked after each step, and true ends it: none is returned
/// then.
///
/// Throws c10::ValueError if `steps` < 1 or the precision of `config` is fp32,
/// and what make_model() and Trainer::run() throw; a low-precision run that
/// Trainer gives up is no error but fails.
AMPKIT_API std::optional<RolloutResult> rollout(
    const RunConfig& config,
    const TrainingData& data,
    int64_t steps,
    const RolloutBounds& bounds = {},
    const std::function<void(const StepRecord&, bool low)>& on_step = nullptr,
    const std::function<bool()>& should_stop = nullptr);

/// Watches the full run by what the roll-out saw.
class AMPKIT_API RolloutAlarms {
 public:
  RolloutAlarms(
      const RolloutResult& result,
      double min_scale,
      const RolloutBounds& bounds = {});

  /// What is wrong now that was not at the step before: the loss far above
  /// where it began, gradient norms or NaN rate out of bounds, the scale at its
  /// floor. Empty: nothing.
  std::vector<std::string> on_step(const StepRecord& record);

 private:
  bool begins(size_t alarm, bool on);

  double highest_loss_;
  double highest_norm_;
  double min_scale_;
  RolloutBounds bounds_;
  std::vector<bool> on_;
};

/// Some lines for people.
AMPKIT_API std::string to_string(const RolloutResult& result);

} // namespace ampkit::zoo
