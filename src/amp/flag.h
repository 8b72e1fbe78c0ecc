#pragma once

#include <ATen/core/Tensor.h>

namespace ampkit {

/// A truth that is known on the host, or so far only on a device.
class Flag {
 public:
  /// False, known.
  Flag() = default;

  /// Known.
  explicit Flag(bool value) : value_(value) {}

  /// `value`: bool []; known if it is readable now.
  explicit Flag(const at::Tensor& value);

  /// Whether any of `values`, floating point, is inf or NaN.
  static Flag not_finite(const at::Tensor& values);

  bool is_known() const { return !tensor_.defined(); }

  /// Waits for the device unless known.
  bool read() const;

  /// bool [] on `device`. Waits only if the flag is on another one.
  at::Tensor tensor(c10::Device device) const;

  /// Where it is; the CPU if it is known.
  c10::Device device() const;

  Flag operator|(const Flag& other) const;
  Flag operator&(const Flag& other) const;
  Flag operator!() const;

 private:
  bool value_ = false;
  at::Tensor tensor_; // bool [], unless known
};

} // namespace ampkit
