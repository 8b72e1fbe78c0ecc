#include <ampkit/amp/grad_scaler_options.h>

#include <cmath>
#include <limits>

#include <c10/util/Exception.h>

#include "amp/adaptive_clip.h"
#include "amp/grad_scaler_impl.h"

namespace ampkit {
namespace {

bool finite_positive(double value) {
  return std::isfinite(value) && value > 0;
}

void check_factors(const GradScalerOptions& o) {
  TORCH_CHECK_VALUE(
      finite_positive(o.init_scale),
      "GradScaler: init_scale must be finite and > 0, got ",
      o.init_scale);
  TORCH_CHECK_VALUE(
      std::isfinite(o.growth_factor) && o.growth_factor > 1,
      "GradScaler: growth_factor must be finite and > 1, got ",
      o.growth_factor);
  TORCH_CHECK_VALUE(
      o.backoff_factor > 0 && o.backoff_factor < 1,
      "GradScaler: backoff_factor must be in (0, 1), got ",
      o.backoff_factor);
}

void check_limits(const GradScalerOptions& o) {
  TORCH_CHECK_VALUE(
      finite_positive(o.min_scale),
      "GradScaler: min_scale must be finite and > 0, got ",
      o.min_scale);
  TORCH_CHECK_VALUE(
      std::isfinite(o.max_scale) && o.max_scale >= o.min_scale,
      "GradScaler: max_scale must be finite and >= min_scale ",
      o.min_scale,
      ", got ",
      o.max_scale);
  TORCH_CHECK_VALUE(
      o.torch_exact ||
          (o.init_scale >= o.min_scale && o.init_scale <= o.max_scale),
      "GradScaler: init_scale must be in [min_scale, max_scale] = [",
      o.min_scale,
      ", ",
      o.max_scale,
      "], got ",
      o.init_scale);
}

void check_count(const char* name, int64_t value, int64_t least) {
  TORCH_CHECK_VALUE(
      value >= least,
      "GradScaler: ",
      name,
      " must be >= ",
      least,
      ", got ",
      value);
}

void check_torch_exact(const GradScalerOptions& o) {
  const GradScalerOptions defaults;
  const bool untouched =
      o.min_scale == defaults.min_scale && o.max_scale == defaults.max_scale &&
      o.hysteresis == defaults.hysteresis && !o.consecutive_hysteresis &&
      o.dynamic && o.max_consecutive_skips == defaults.max_consecutive_skips &&
      o.max_consecutive_faults == defaults.max_consecutive_faults;
  TORCH_CHECK_VALUE(
      !o.torch_exact || untouched,
      "GradScaler: torch_exact must come without min_scale, max_scale, "
      "hysteresis, consecutive_hysteresis, dynamic, max_consecutive_skips and "
      "max_consecutive_faults, which torch.amp.GradScaler does not have");
  TORCH_CHECK_VALUE(
      !o.torch_exact || !o.check_without_scaling,
      "GradScaler: torch_exact must come without check_without_scaling: a "
      "torch.amp.GradScaler that is not enabled checks nothing");
}

} // namespace

void GradScalerOptions::check() const {
  check_factors(*this);
  check_limits(*this);
  check_count("growth_interval", growth_interval, 1);
  check_count("hysteresis", hysteresis, 1);
  check_count("max_consecutive_skips", max_consecutive_skips, 0);
  check_count("max_consecutive_faults", max_consecutive_faults, 0);
  TORCH_CHECK_VALUE(
      hysteresis > 1 || !consecutive_hysteresis,
      "GradScaler: consecutive_hysteresis must come with a hysteresis of 2 or "
      "more, got ",
      hysteresis);
  check_torch_exact(*this);
}

void check_step_options(const StepOptions& options, const char* who) {
  TORCH_CHECK_VALUE(
      !options.max_norm.has_value() || *options.max_norm > 0,
      "GradScaler::",
      who,
      ": max_norm must be > 0, got ",
      options.max_norm.value_or(0));
  TORCH_CHECK_VALUE(
      options.norm_type == 1 || options.norm_type == 2 ||
          std::isinf(options.norm_type),
      "GradScaler::",
      who,
      ": norm_type must be 1, 2 or infinity, got ",
      options.norm_type);
  TORCH_CHECK_VALUE(
      !options.clip_value.has_value() || *options.clip_value > 0,
      "GradScaler::",
      who,
      ": clip_value must be > 0, got ",
      options.clip_value.value_or(0));
  if (options.adaptive_clip.has_value()) {
    check_adaptive_clip(
        *options.adaptive_clip, c10::str("GradScaler::", who).c_str());
    TORCH_CHECK_VALUE(
        !options.clip_value.has_value() &&
            std::isinf(options.max_norm.value_or(
                std::numeric_limits<double>::infinity())),
        "GradScaler::",
        who,
        ": adaptive_clip goes with neither clip_value nor a finite max_norm");
  }
}

} // namespace ampkit
