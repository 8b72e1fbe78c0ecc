#pragma once

#include "kernels/optim_span.h"

namespace ampkit::kernels {

/// Sums over one row of a matrix: of fp32 within blocks that fit the innermost
/// cache, of fp64 across them.
struct AdafactorRowSums {
  double gradient_squares = 0;
  double weight_squares = 0;
};

/// The variance of element j of a row is estimated as
/// max(row * columns[j], least).
struct AdafactorVariance {
  float row = 1;
  const float* columns = nullptr;
  float least = 0;
};

/// Reads one row, and adds the squares of its gradients to `columns`.
AdafactorRowSums adafactor_read_row(const UpdateSpan& row, float* columns);

/// The sum of squares of gradient / sqrt(variance), summed likewise.
double adafactor_measure_row(
    const UpdateSpan& row, const AdafactorVariance& variance);

/// weight = weight * `decay` - `step_size` * gradient / sqrt(variance).
void adafactor_apply_row(
    const UpdateSpan& row,
    const AdafactorVariance& variance,
    float decay,
    float step_size);

} // namespace ampkit::kernels
