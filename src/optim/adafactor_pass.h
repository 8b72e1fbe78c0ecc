#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/optim_span.h"
#include "optim/gradient_pass.h"

namespace ampkit::optim {

/// One matrix in a step of Adafactor with ampkit's kernels.
struct AdafactorMatrix {
  kernels::UpdateSpan span;
  size_t rows = 0;
  size_t columns = 0;
  float* row_var = nullptr;
  float* col_var = nullptr;
  /// Of this step: the weight of its squares in the averages, the least root of
  /// a variance and RMS of the weights, the largest RMS of a direction, the
  /// relative step size and what the weights are multiplied by.
  double forgetting = 1;
  double eps1 = 0;
  double eps2 = 0;
  double d = 1;
  double rho = 0;
  double decay = 1;
};

/// One step of all `matrices`, in three sweeps over the gradients; the rule is
/// torch.optim.Adafactor's. Results don't depend on the number of threads.
void update_matrices(std::span<const AdafactorMatrix> matrices);

} // namespace ampkit::optim
