#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fused_step.h>
#include <ampkit/export.h>

namespace ampkit {

/// Settings of a GradScaler; the first four and their defaults are those of
/// torch.amp.GradScaler. docs/amp.md has the names of other libraries.
///
/// A step is skipped for one of two reasons. An overflow (the loss is finite, a
/// gradient is not) shrinks the scale. A fault is nothing that a smaller scale
/// could cure: the loss itself is inf or NaN, or a gradient was so before
/// backward. It leaves the scale and its counters as they are.
struct AMPKIT_API GradScalerOptions {
  /// Loss multiplier of the first step; finite and > 0.
  double init_scale = 65536.0;
  /// Applied after `growth_interval` clean steps in a row; > 1.
  double growth_factor = 2.0;
  /// Applied after a step that overflowed; in (0, 1).
  double backoff_factor = 0.5;
  /// Optimizer steps, counted at update(), not backward passes; >= 1.
  int64_t growth_interval = 2000;
  /// The scale never falls below; > 0. torch.amp.GradScaler has no floor: its
  /// scale can reach 0, and the next good step then multiplies 0 by inf.
  double min_scale = 1.0;
  /// The scale never grows beyond; finite, >= min_scale. The default is the
  /// largest power of two of FP32, as far as torch.amp.GradScaler goes.
  double max_scale = 0x1p127;
  /// The scale shrinks at this overflow and every later one, until a growth
  /// sets the count back: Megatron-LM's and DeepSpeed's rule; >= 1.
  int64_t hysteresis = 1;
  /// Every clean step sets that count back: only overflows in a row shrink the
  /// scale.
  bool consecutive_hysteresis = false;
  /// false: a static scale, which stays at init_scale (or what update() or a
  /// loaded state sets); overflows are still skipped.
  bool dynamic = true;
  /// update() throws once so many iterations in a row were skipped, whatever
  /// for; >= 0, 0: never. Halving takes 127 steps from the largest scale to 1.
  int64_t max_consecutive_skips = 200;
  /// The same of faults; >= 0, 0: never.
  int64_t max_consecutive_faults = 10;
  /// Exactly torch.amp.GradScaler: a fault counts as an overflow, there is no
  /// floor, no ceiling below FP32's and no limit to skips. The options that say
  /// otherwise must have their defaults.
  bool torch_exact = false;
  /// false: scale() and update() do nothing, step() only steps (and clips).
  bool enabled = true;
  /// Not enabled, for BF16 and FP32, but with all the rest: steps with a fault
  /// or a gradient that is inf or NaN are skipped and counted, and update()
  /// watches the limits. Needs every call of an enabled scaler.
  bool check_without_scaling = false;

  /// Data parallel: makes `flags` (fp32 [4], of 0 and 1, on the device of the
  /// scale) the largest over the ranks, in place; max_over_ranks() of dist/
  /// does it. Each step(), and each update() after an unscale_() without
  /// step(), calls it once, so that all ranks skip the same steps for the same
  /// reason and their scales stay equal. A rank whose optimizer has no
  /// gradients takes part, and follows the others. All ranks must make the same
  /// calls.
  std::function<void(at::Tensor& flags)> agree_over_ranks;

  /// Throws c10::ValueError, naming the field, if one is out of range or does
  /// not go with another.
  void check() const;
};

/// What GradScaler::step does besides stepping.
struct StepOptions {
  /// Clips the total norm of the unscaled gradients to this, as
  /// torch.nn.utils.clip_grad_norm_ does; > 0. Infinity: measure the norm only.
  std::optional<double> max_norm;
  /// Which norm: 1, 2 or infinity (the largest magnitude).
  double norm_type = 2;
  /// Limits each element of the unscaled gradients to [-clip_value,
  /// clip_value], as torch.nn.utils.clip_grad_value_ does; > 0. With max_norm,
  /// after it.
  std::optional<double> clip_value;
  /// Clips each row of the unscaled gradients by the norm of its weights; not
  /// together with the others, but for a max_norm of infinity.
  std::optional<AdaptiveClip> adaptive_clip;
  /// true: an optimizer none of whose parameters has a gradient is skipped
  /// and does not count at update(), instead of being an error.
  bool allow_no_grad = false;
  /// Run first, once, with gradients enabled: clears gradients, computes the
  /// loss and calls scale(loss).backward().
  std::function<at::Tensor()> closure;
};

} // namespace ampkit
