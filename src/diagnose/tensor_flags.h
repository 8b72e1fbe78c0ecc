#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace ampkit::diagnose {

/// Which values that are not finite stand in a tensor.
struct Flags {
  bool nan = false;
  bool positive_inf = false;
  bool negative_inf = false;

  bool inf() const { return positive_inf || negative_inf; }
  bool any() const { return nan || inf(); }
  Flags operator|(const Flags& other) const;
  bool operator==(const Flags&) const = default;
};

/// Float, Double, Half and BFloat16.
bool is_watched_dtype(at::ScalarType dtype);

/// Whether flags_of() and flags_on_device() can read `tensor`: a watched dtype,
/// strided, with memory and elements.
bool is_watched(const at::Tensor& tensor);

/// Reads a watched tensor once. Waits for its device.
Flags flags_of(const at::Tensor& tensor);

/// The same without waiting: uint8 [], to be read by flags_from() once it is on
/// the CPU.
at::Tensor flags_on_device(const at::Tensor& tensor);
Flags flags_from(uint8_t bits);

/// Share of the elements of a watched tensor that are 0. Waits for its device.
double share_of_zeros(const at::Tensor& tensor);

/// Largest magnitude of a watched tensor; inf or NaN if one stands in it. Waits
/// for its device.
double largest_magnitude(const at::Tensor& tensor);

} // namespace ampkit::diagnose
