#pragma once

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit::diagnose {

/// How far a tensor is from what it should be.
struct Deviation {
  /// |value - reference| / |reference|, Euclidean norms; 1 where the reference
  /// is all zeros and the value is not. NaN, as the two below, unless `finite`.
  double relative = 0;
  /// Of the angle between the two; 1 where both are all zeros.
  double cosine = 1;
  /// Mean distance of elements in units in the last place, as the value's dtype
  /// has them at the reference.
  double ulp = 0;
  /// Share of the reference's elements other than 0 that are 0 in the value.
  double flushed = 0;
  /// Whether both tensors are, but for equal infinities, as a mask has them:
  /// those are passed over in all numbers.
  bool finite = true;
};

/// `value` and `reference`: floating-point of any dtypes, of one shape and one
/// device. Computed in float64; waits for the device. Throws c10::ValueError
/// for shapes that differ and dtypes that are no floating-point ones.
AMPKIT_API Deviation
deviation(const at::Tensor& value, const at::Tensor& reference);

} // namespace ampkit::diagnose
