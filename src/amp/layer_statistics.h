#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/precision_controller.h>

namespace ampkit {

/// What one pass over (a sample of) a tensor counts, as seen from a 16-bit
/// dtype. Each element is in one of the counts or in none of them, but `lowest`
/// is a part of `subnormal`.
struct TensorCounts {
  int64_t elements = 0;
  int64_t non_finite = 0; ///< inf and NaN
  int64_t beyond = 0; ///< finite, but inf in the 16-bit dtype
  int64_t zero = 0;
  int64_t lost = 0; ///< not zero, but zero in the 16-bit dtype
  int64_t subnormal = 0; ///< subnormal in the 16-bit dtype
  int64_t lowest = 0; ///< of those: below 8 times its smallest number
  double amax = 0; ///< of the finite ones

  TensorCounts& operator+=(const TensorCounts& other);
};

/// Counts on the CPU at once. `tensor`: Float, Half or BFloat16, any strides.
/// Looks at every k-th element, so that there are at most `max_elements`.
/// `low`: the 16-bit dtype for a Float tensor; another tensor's is its own.
TensorCounts count_elements(
    const at::Tensor& tensor, at::ScalarType low, int64_t max_elements);

/// The same on any device without waiting for it: float64 [8], to be read by
/// counts_from() once it is on the CPU.
at::Tensor count_on_device(
    const at::Tensor& tensor, at::ScalarType low, int64_t max_elements);
TensorCounts counts_from(const at::Tensor& counts);

/// How zeros are judged.
struct ZeroRule {
  /// The values have been in 16 bits, so that zeros may be losses.
  bool was_16bit = false;
  /// Share of zeros that float32 was seen to have in this place.
  double structural = 0;
  /// What a tensor of nothing but zeros says: everything lost, or nothing.
  bool all_zero_is_loss = false;
};

/// Shares as docs/precision_controller.md defines them.
TensorStatistics shares(const TensorCounts& counts, const ZeroRule& zeros);

/// The largest finite number of a 16-bit dtype.
double largest(at::ScalarType low);

} // namespace ampkit
