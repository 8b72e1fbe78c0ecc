#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/step_result.h>
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
  /// The norm that was asked for, of the gradients as they are; dtype, device
  /// and reservation as of sum_of_squares.
  at::Tensor norm;
  /// How many parameters have a gradient.
  int64_t with_gradient = 0;
  /// fp32, shape [n], what non_finite is the sum of: the counts of the
  /// gradients that may hold inf or NaN. On the CPU these are the ones that do,
  /// elsewhere all. Undefined: none does.
  at::Tensor non_finite_counts;
  /// The n parameters that the counts are of, and their names; empty if the
  /// counts are undefined.
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
};

/// Adaptive gradient clipping (Brock et al., 2021,
/// https://arxiv.org/abs/2102.06171): each row of a gradient is scaled so that
/// its 2-norm is at most `clip_factor` times that of the same row of the
/// weights. A row is what belongs to one output: all but the first dimension;
/// a parameter of one dimension is one row.
struct AdaptiveClip {
  /// > 0.
  double clip_factor = 0.01;
  /// Weights of a smaller norm count as this; > 0.
  double eps = 1e-3;
};

/// What a fused step divides by and whether it may do anything at all.
struct FusedStepInputs {
  /// fp32, shape [], > 0: gradients are divided by it before use (loss scale
  /// times clipping factor). Undefined: taken as they are.
  at::Tensor grad_divisor;
  /// fp32, shape []: if not 0, nothing changes, the step count included.
  /// Undefined: always step.
  at::Tensor found_inf;
  /// Limits each element, after the division, to [-clip_value, clip_value];
  /// > 0.
  std::optional<double> clip_value;
  /// Clips adaptively, after the division, through temporaries of at most
  /// 64 MiB, or one parameter.
  std::optional<AdaptiveClip> adaptive_clip;
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

  /// Pass 1: reads the gradients. `norm_type`: 1, 2 or infinity.
  virtual GradientSummary inspect_gradients(double norm_type = 2) = 0;

  /// Pass 2: decay, moments, masters, parameters. Not called for a step that is
  /// known on the host to be skipped.
  virtual void fused_step(const FusedStepInputs& inputs) = 0;

  /// Which gradients are to blame for a skipped step. May wait for the device.
  virtual std::vector<NonFiniteGradient> non_finite_gradients() const {
    return {};
  }
};

} // namespace ampkit
