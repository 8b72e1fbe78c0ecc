#pragma once

#include "kernels/optim_span.h"

namespace ampkit::kernels {

struct RmspropFactors {
  float weight_decay = 0;
  float alpha = 0;
  float one_minus_alpha = 0;
  float momentum = 0;
  float lr = 0;
  float eps = 0;
  bool centered = false;
};

/// One step of torch.optim.RMSprop's rule. `span.first` is square_avg,
/// `span.second` momentum_buffer with momentum, `span.third` grad_avg if
/// centered. Each element depends on its own inputs only.
void rmsprop_update(const RmspropFactors& factors, const UpdateSpan& span);

} // namespace ampkit::kernels
