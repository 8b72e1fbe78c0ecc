#pragma once

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit {

/// Whether an optimizer step was taken. Reading it waits for the device;
/// passing it around does not. Safe to copy and to read from any thread.
class AMPKIT_API StepResult {
 public:
  /// A step whose outcome is known on the host.
  static StepResult of(bool stepped);

  /// `found_inf`: shape [], non-zero if the step was skipped. `grad_norm`:
  /// shape [], or undefined if it was not computed; of a skipped step, any
  /// value.
  StepResult(at::Tensor found_inf, at::Tensor grad_norm);

  /// Synchronises with the device.
  bool stepped() const;
  bool skipped() const { return !stepped(); }

  /// Total 2-norm of the unscaled gradients before clipping; NaN if the step
  /// was skipped, or the norm not computed. Synchronises with the device.
  double grad_norm() const;

  /// fp32, shape [], on the device: non-zero if skipped. Does not synchronise.
  const at::Tensor& found_inf() const { return found_inf_; }

 private:
  at::Tensor found_inf_;
  at::Tensor grad_norm_;
};

} // namespace ampkit
