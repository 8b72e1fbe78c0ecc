#pragma once

#include "kernels/optim_span.h"

namespace ampkit::kernels {

struct AdagradFactors {
  float weight_decay = 0;
  /// lr / (1 + (t - 1) * lr_decay) in step t.
  float step_size = 0;
  float eps = 0;
};

/// One step of torch.optim.Adagrad's rule. `span.first` is the sum of squares.
/// Each element depends on its own inputs only.
void adagrad_update(const AdagradFactors& factors, const UpdateSpan& span);

} // namespace ampkit::kernels
