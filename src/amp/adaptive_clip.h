#pragma once

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fused_step.h>

namespace ampkit {

/// Throws c10::ValueError "`who`: clip_factor must be > 0, ...".
void check_adaptive_clip(const AdaptiveClip& clip, const char* who);

/// `grad` clipped by the rows of `weight`, a new tensor of the dtype of `grad`,
/// which is fp32 or fp64. Does not wait for the device.
at::Tensor clipped_adaptively(
    const at::Tensor& grad, const at::Tensor& weight, const AdaptiveClip& clip);

} // namespace ampkit
