#pragma once

#include <cstdint>
#include <string>

#include <ampkit/export.h>

namespace ampkit::diagnose {

/// What went wrong in a step.
enum class Verdict : uint8_t {
  /// A scaled gradient left its dtype, the unscaled one would not: GradScaler
  /// skips the step and halves the scale. Counted, never reported.
  handled_overflow,
  forward_overflow, ///< a result is beyond the dtype; float64 would hold it
  backward_overflow, ///< of a gradient; no smaller scale cures it
  division, ///< by 0
  logarithm, ///< of 0 or less
  root, ///< sqrt or rsqrt or a power outside its domain
  singular_gradient, ///< finite forward, infinite slope: sqrt at 0
  inf_minus_inf, ///< or 0 * inf: infinities that were meant to be there met
  masked_row, ///< softmax of a row with nothing but -inf
  invalid_operation, ///< any other op that gave NaN
  bad_input, ///< the batch was not finite
  bad_parameter, ///< a parameter was not finite before the step
  bad_buffer, ///< a buffer (running statistics) was not finite before it
  optimizer, ///< the update itself, or weights that it blew up
  gradient_underflow, ///< gradients became 0 in fp16: training stalls
  scale_at_floor, ///< overflows go on although the scale can't shrink
};

/// "forward overflow"
AMPKIT_API std::string to_string(Verdict verdict);

/// What to do about it, in one or two sentences.
AMPKIT_API std::string remedy(Verdict verdict);

/// Whether more range or precision can cure it; else data, code or settings.
AMPKIT_API bool is_about_precision(Verdict verdict);

} // namespace ampkit::diagnose
