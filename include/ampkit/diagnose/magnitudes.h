#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace ampkit::diagnose {

/// How many elements of tensors lie between one power of two and the next: a
/// histogram against which it can be held what a dtype holds.
class AMPKIT_API Magnitudes {
 public:
  /// Exponents of the smallest and the largest bin: those of float32's
  /// subnormals and of its largest numbers. What lies outside goes to the ends.
  static constexpr int kLowest = -149;
  static constexpr int kHighest = 127;

  /// Counts the elements of `tensor` (Float, Double, Half or BFloat16, any
  /// strides) times `factor`. Waits for the device. Throws c10::ValueError for
  /// another dtype.
  void add(const at::Tensor& tensor, double factor = 1);

  /// Elements with 2^exponent <= magnitude < 2^(exponent + 1); 0 outside of the
  /// bins.
  int64_t count(int exponent) const;

  int64_t elements() const { return elements_; }
  int64_t zeros() const { return zeros_; }
  int64_t non_finite() const { return non_finite_; }
  /// Largest finite magnitude; 0 if there is none.
  double amax() const { return amax_; }

  /// Share, among the elements that are neither 0 nor non-finite, of those with
  /// a magnitude below 2^exponent; 0 if there are none.
  double share_below(int exponent) const;

  /// Share that becomes 0 or loses bits in `dtype`: below its smallest normal
  /// number. And that which becomes inf: at or above 2^(largest exponent + 1).
  double share_subnormal(c10::ScalarType dtype) const;
  double share_beyond(c10::ScalarType dtype) const;

  /// Powers of two from amax() to the largest number of `dtype`: by how many
  /// bits values can grow. Infinite if there are no values but zeros.
  double headroom_bits(c10::ScalarType dtype) const;

 private:
  void add_one(double value);

  std::vector<int64_t> bins_; // empty: nothing yet
  int64_t elements_ = 0;
  int64_t zeros_ = 0;
  int64_t non_finite_ = 0;
  double amax_ = 0;
};

/// The largest power of two by which a loss can be multiplied so that its
/// gradients, whose magnitudes `gradients` are without it, stay below
/// 2^-`margin_bits` of the largest number of fp16. 1 if there are none.
AMPKIT_API double recommended_loss_scale(
    const Magnitudes& gradients, int margin_bits = 3);

} // namespace ampkit::diagnose
