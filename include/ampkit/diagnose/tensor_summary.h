#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit::diagnose {

/// What stands in a tensor. Minimum, maximum and mean are of the finite
/// elements, and 0 if there are none.
struct AMPKIT_API TensorSummary {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  int64_t elements = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  int64_t zeros = 0;
  int64_t subnormals = 0; ///< of the tensor's own dtype
  int64_t nans = 0;
  int64_t positive_infs = 0;
  int64_t negative_infs = 0;
  /// The first index of dimension 0 with an element that is not finite; -1:
  /// none.
  int64_t first_bad_row = -1;

  int64_t non_finite() const { return nans + positive_infs + negative_infs; }
  /// The larger of |min| and |max|.
  double amax() const;
};

/// Reads `tensor` (Float, Double, Half or BFloat16; any strides, any device)
/// once. Waits for the device. Throws c10::ValueError for another dtype.
AMPKIT_API TensorSummary summarize(const at::Tensor& tensor);

/// "Half [8, 16]: -3.1 to 65504, mean 0.2, 12 % zeros, 3 inf of 128". Only what
/// is there is named.
AMPKIT_API std::string to_string(const TensorSummary& summary);

} // namespace ampkit::diagnose
