#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit {

struct StepFacts;

/// Why a step was not taken.
enum class SkipReason {
  none, ///< it was taken
  overflow, ///< a gradient was inf or NaN although the loss was finite
  loss, ///< a fault: the loss itself was inf or NaN
  leftover, ///< a fault: a gradient was inf or NaN before backward already
  no_gradient, ///< no parameter had one (StepOptions::allow_no_grad)
};

/// A parameter whose gradient holds inf or NaN.
struct NonFiniteGradient {
  /// As GradScaler::name_parameters() gave it, else the optimizer's own, else
  /// "parameter 2 of group 0".
  std::string name;
  /// How many values are inf or NaN. On devices other than the CPU, where only
  /// whether there are any is known without another pass: 1.
  int64_t elements = 0;
  /// How many values there are.
  int64_t size = 0;
};

/// Whether an optimizer step was taken, and if not, why. Reading it waits for
/// the device; passing it around does not. Safe to copy and to read from any
/// thread.
class AMPKIT_API StepResult {
 public:
  /// A step whose outcome is known on the host.
  static StepResult of(bool stepped);

  /// `found_inf`: shape [], non-zero if the step was skipped. `grad_norm`:
  /// shape [], or undefined if it was not computed; of a skipped step, any
  /// value.
  StepResult(const at::Tensor& found_inf, const at::Tensor& grad_norm);

  explicit StepResult(std::shared_ptr<const StepFacts> facts);

  /// Synchronises with the device.
  bool stepped() const;
  bool skipped() const { return !stepped(); }

  /// Synchronises with the device.
  SkipReason reason() const;

  /// Of a skipped step: the parameters to blame, in the optimizer's order
  /// within each dtype.
  /// Empty for a step that was taken, and where the loss was not finite but
  /// the gradients are. Synchronises with the device.
  std::vector<NonFiniteGradient> non_finite() const;

  /// "stepped", or "skipped: gradients overflowed, in 'fc.weight' (3 of 12
  /// values)". Synchronises with the device.
  std::string describe() const;

  /// Total 2-norm of the unscaled gradients before clipping; NaN if the step
  /// was skipped, or the norm not computed. Synchronises with the device.
  double grad_norm() const;

  /// fp32, shape [], on the device: non-zero if skipped. Does not synchronise.
  at::Tensor found_inf() const;

 private:
  std::shared_ptr<const StepFacts> facts_;
};

} // namespace ampkit
