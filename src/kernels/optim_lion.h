#pragma once

#include "kernels/optim_span.h"

namespace ampkit::kernels {

struct LionFactors {
  float beta1 = 0;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  /// 1 - lr * weight_decay.
  float decay = 1;
  float lr = 0;
};

/// One step of Lion. `span.first` is exp_avg. A NaN in the gradient gives a NaN
/// weight. Each element depends on its own inputs only.
void lion_update(const LionFactors& factors, const UpdateSpan& span);

} // namespace ampkit::kernels
