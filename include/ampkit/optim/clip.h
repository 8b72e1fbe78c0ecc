#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fused_step.h>
#include <ampkit/export.h>

namespace ampkit::optim {

/// Settings of clip_grad_norm_().
struct ClipGradNormOptions {
  /// > 0; infinity: the largest magnitude.
  double norm_type = 2.0;
  /// Throw instead of leaving the gradients; waits for the device.
  bool error_if_nonfinite = false;
};

/// Scales the gradients of `parameters` in place so that their total norm is at
/// most `max_norm`, as torch.nn.utils.clip_grad_norm_, and returns the norm
/// before: fp32 [] on the device of the first gradient (fp64 if they are).
///
/// Sums are taken in fp32 or fp64 whatever the gradients' dtypes. If the norm
/// is inf or NaN, every gradient stays as it is, where PyTorch would turn all
/// of them into zeros or NaN: look at the norm that is returned. Undefined
/// gradients are skipped; with none at all the norm is 0. Does not wait for the
/// device.
///
/// Clip what is unscaled: after GradScaler::unscale_(). Cheaper is
/// GradScaler::step(optimizer, {.max_norm = ...}), which clips within the step.
/// Here as in the functions below, gradients of parameters that a GradScaler
/// has stepped, unscaled or named before are refused while they are scaled.
///
/// Throws c10::ValueError, changing nothing, if `max_norm` is not > 0 or
/// `norm_type` is out of range, and c10::Error for a sparse or a scaled
/// gradient or, if so asked, a norm that is not finite.
AMPKIT_API at::Tensor clip_grad_norm_(
    const std::vector<at::Tensor>& parameters,
    double max_norm,
    const ClipGradNormOptions& options = {});

/// Limits each element of the gradients to [-clip_value, clip_value] in place.
/// NaN stays NaN. Throws, changing nothing, c10::ValueError if `clip_value` is
/// not > 0, and c10::Error for a sparse or a scaled gradient.
AMPKIT_API void clip_grad_value_(
    const std::vector<at::Tensor>& parameters, double clip_value);

/// Clips each row of the gradients by the norm of the same row of the weights,
/// in place, as AdaptiveClip says. Brock et al. leave out the last linear
/// layer: don't pass its parameters. Norms are taken in fp32 or fp64. A row
/// that is not finite stays as it is. Does not wait for the device. Throws
/// c10::ValueError, changing nothing, if an option is not > 0, and c10::Error
/// for a sparse or a scaled gradient.
AMPKIT_API void adaptive_clip_grad_(
    const std::vector<at::Tensor>& parameters, const AdaptiveClip& clip = {});

} // namespace ampkit::optim
