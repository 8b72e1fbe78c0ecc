#pragma once

#include <cstdint>

#include "kernels/optim_span.h"

namespace ampkit::kernels {

struct GradientSums {
  /// Exact number of elements that are inf or NaN.
  int64_t non_finite = 0;
  /// Of the finite elements.
  double sum_of_squares = 0;
};

/// One read of `grad`. Squares are summed in fp32 within blocks that fit the
/// innermost cache and in fp64 across them; a block whose sum left the range of
/// fp32, upwards or downwards, is summed again in fp64. Depends on the split of
/// a tensor into spans, within the rounding of fp32.
GradientSums inspect_gradient(const GradientSpan& grad);

/// Of a gradient whose elements are all finite: the sum of the magnitudes, in
/// fp64, and the largest magnitude.
double sum_of_magnitudes(const GradientSpan& grad);
double largest_magnitude(const GradientSpan& grad);

} // namespace ampkit::kernels
