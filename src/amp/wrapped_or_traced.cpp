#include "amp/wrapped_or_traced.h"

#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace ampkit {

bool wrapped_or_traced(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers(
      {c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::Functionalize,
       c10::DispatchKey::Python});
  return tensor.key_set().has_any(kWrappers) || torch::jit::tracer::isTracing();
}

} // namespace ampkit
