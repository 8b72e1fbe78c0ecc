#pragma once

#include <ATen/core/Tensor.h>

namespace ampkit::optim {

inline at::Tensor parameter(at::Tensor values) {
  return values.requires_grad_();
}

inline void set_grad(const at::Tensor& parameter, const at::Tensor& grad) {
  parameter.mutable_grad() = grad;
}

} // namespace ampkit::optim
