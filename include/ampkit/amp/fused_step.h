#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit {

/// What one read of all gradients of an optimizer gives.
struct GradientSummary {
  /// fp32, shape [], on the device of the parameters: how many elements are
  /// inf or NaN; on devices other than the CPU how many parameters hold any.
  /// 0 means that every gradient is finite.
  at::Tensor non_finite;
  /// fp64 on the CPU, fp32 elsewhere, shape []: sum of squares of the gradients
  /// as they are, neither unscaled nor clipped. Meaningless unless non_finite
  /// is 0.
  at::Tensor sum_of_squares;
  /// How many parameters have a gradient.
  int64_t with_gradient = 0;
};

/// A parameter whose gradient holds inf or NaN.
struct NonFiniteGradient {
  std::string name;
  int64_t elements = 0;
};

/// What a fused step divides by and whether it may do anything at all.
struct FusedStepInputs {
  /// fp32, shape [], > 0: gradients are divided by it before use (loss scale
  /// times clipping factor). Undefined: taken as they are.
  at::Tensor grad_divisor;
  /// fp32, shape []: if not 0, nothing changes, the step count included.
  /// Undefined: always step.
  at::Tensor found_inf;
};

/// How a GradScaler hands unscaling, clipping and the finite check to an
/// optimizer that does them inside its own pass over memory, so that they cost
/// none of their own. Optimizers of ampkit implement it; any other
/// torch::optim::Optimizer is served by separate passes.
///
/// Two calls, because ranks must agree on found_inf between them. Neither
/// writes to the gradients, and neither waits for the device.
class AMPKIT_API FusedStep {
 public:
  virtual ~FusedStep() = default;

  /// Pass 1: reads the gradients.
  virtual GradientSummary inspect_gradients() = 0;

  /// Pass 2: decay, moments, masters, parameters.
  virtual void fused_step(const FusedStepInputs& inputs) = 0;

  /// Which gradients are to blame for a skipped step. May wait for the device.
  virtual std::vector<NonFiniteGradient> non_finite_gradients() const {
    return {};
  }
};

} // namespace ampkit
