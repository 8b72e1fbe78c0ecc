#pragma once

#include "kernels/optim_span.h"

namespace ampkit::kernels {

/// With t steps taken, this one included, and c_i = 1 - beta_i^t, or 1 without
/// bias correction: first_factor = 1 / c_1, root_factor = 1 / sqrt(c_2).
struct LambFactors {
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float first_factor = 1;
  float root_factor = 1;
  float eps = 0;
  float weight_decay = 0;
};

struct LambSums {
  double weight_squares = 0;
  double direction_squares = 0;
};

/// First half of a step of LAMB: writes the moments, `span.first` exp_avg and
/// `span.second` exp_avg_sq, and gives what the trust ratio is made of. The
/// sums are of fp32 within blocks that fit the innermost cache, and of fp64
/// across them.
LambSums lamb_moments(const LambFactors& factors, const UpdateSpan& span);

/// Second half: weight -= `step_size` * direction, made from the moments anew,
/// which costs less than to write it down. The gradient is not read.
void lamb_apply(
    const LambFactors& factors, float step_size, const UpdateSpan& span);

} // namespace ampkit::kernels
