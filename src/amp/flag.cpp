#include "amp/flag.h"

#include <cmath>

#include <ATen/ATen.h>

#include "amp/host_value.h"

namespace ampkit {

Flag::Flag(const at::Tensor& value) {
  if (readable_now(value)) {
    value_ = host_value(value) != 0;
  } else {
    tensor_ = value;
  }
}

// The difference of a number and itself is 0 unless it is inf or NaN.
Flag Flag::not_finite(const at::Tensor& values) {
  if (readable_now(values) && values.numel() == 1) {
    return Flag(!std::isfinite(host_value(values)));
  }
  const auto zero = values.sub(values);
  return Flag((values.dim() == 0 ? zero : zero.sum()).ne(0));
}

bool Flag::read() const {
  return is_known() ? value_ : tensor_.item<bool>(); // waits
}

at::Tensor Flag::tensor(c10::Device device) const {
  return is_known()
             ? at::full({}, value_, at::TensorOptions(device).dtype(at::kBool))
             : tensor_.to(device);
}

c10::Device Flag::device() const {
  return is_known() ? c10::Device(at::kCPU) : tensor_.device();
}

Flag Flag::operator|(const Flag& other) const {
  if (is_known()) {
    return value_ ? *this : other;
  }
  return other.is_known() ? other | *this
                          : Flag(tensor_.logical_or(other.tensor(device())));
}

Flag Flag::operator&(const Flag& other) const {
  if (is_known()) {
    return value_ ? other : *this;
  }
  return other.is_known() ? other & *this
                          : Flag(tensor_.logical_and(other.tensor(device())));
}

Flag Flag::operator!() const {
  return is_known() ? Flag(!value_) : Flag(tensor_.logical_not());
}

} // namespace ampkit
