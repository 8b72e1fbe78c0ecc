#pragma once

#include "kernels/optim_span.h"

namespace ampkit::kernels {

struct SgdFactors {
  float weight_decay = 0;
  float momentum = 0;
  float one_minus_dampening = 1;
  float lr = 0;
  bool nesterov = false;
  /// The momentum buffer is not read but set to the gradient.
  bool first_step = false;
};

/// One step of stochastic gradient descent, momentum rule of torch.optim.SGD.
/// `span.first` is the momentum buffer; null where there is no momentum. Each
/// element depends on its own inputs only.
void sgd_update(const SgdFactors& factors, const UpdateSpan& span);

} // namespace ampkit::kernels
