#pragma once

#include "kernels/optim_span.h"

namespace ampkit::kernels {

/// One step of Adam or AdamW in the form in which the kernel wants it. With t
/// steps taken, this one included, and c_i = 1 - beta_i^t:
///   step_size = lr * sqrt(c_2) / c_1, eps = eps * sqrt(c_2)
/// which moves both bias corrections out of the loop.
struct AdamFactors {
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  /// AdamW: the weight is first multiplied by it, 1 - lr * weight_decay.
  float decay = 1;
  /// Adam: added to the gradient, times the weight.
  float penalty = 0;
  float step_size = 0;
  float eps = 0;
  bool amsgrad = false;
};

/// Reads gradient, moments and weight once, and writes moments, weight and the
/// 16-bit mirror. `span.first` and `span.second` are exp_avg and
/// exp_avg_sq, `span.third` is max_exp_avg_sq
/// with amsgrad.
/// Each element depends on its own inputs only, so that any split of a tensor
/// gives the same result. Instruction sets without fused multiply-add (SSE4)
/// round once more in three places.
void adam_update(const AdamFactors& factors, const UpdateSpan& span);

} // namespace ampkit::kernels
