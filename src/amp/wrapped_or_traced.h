#pragma once

#include <ATen/core/Tensor.h>

namespace ampkit {

/// Whether keeping values of `tensor` for later would freeze those of one
/// functorch level, of one Python subclass, or of the trace being taken.
bool wrapped_or_traced(const at::Tensor& tensor);

} // namespace ampkit
