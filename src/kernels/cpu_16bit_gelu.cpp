#include <ATen/CPUFunctions.h>

#include "kernels/cpu_16bit_ops.h"

// LibTorch hands GELU of contiguous bf16 tensors to oneDNN, which builds a
// primitive at every call: 5 us forward and 25 us backward before the first
// element (2.13). Its own vectorised kernel, which it keeps for tensors that
// are not contiguous, starts at once and gives the same numbers within their
// rounding; larger tensors are faster in oneDNN. So small ones are shown to it
// as two columns.

namespace ampkit::kernels {
namespace {

using at::Tensor;

/// From about here on oneDNN's kernel makes up for its start.
constexpr int64_t kMostElements = 1 << 14;

bool wanted(const Tensor& self, c10::string_view approximate) {
  return self.scalar_type() == at::kBFloat16 &&
         cpu_16bit_route(at::kBFloat16) != Cpu16BitRoute::stock &&
         approximate == "none" && self.numel() <= kMostElements &&
         self.numel() >= 4 && self.numel() % 2 == 0 && self.is_contiguous() &&
         self.layout() == at::kStrided;
}

/// All elements of a contiguous tensor, as a matrix that is not contiguous.
Tensor columns(const Tensor& tensor) {
  const int64_t half = tensor.numel() / 2;
  return at::cpu::as_strided(
      tensor, {half, 2}, {1, half}, tensor.storage_offset());
}

Tensor gelu(const Tensor& self, c10::string_view approximate) {
  if (!wanted(self, approximate)) {
    return at::cpu::gelu(self, approximate);
  }
  const NoAutocast no_autocast;
  const Tensor result = at::detail::empty_cpu(self.sizes(), self.options());
  auto result_columns = columns(result);
  at::cpu::gelu_outf(columns(self), approximate, result_columns);
  return result;
}

Tensor gelu_backward(
    const Tensor& gradient, const Tensor& self, c10::string_view approximate) {
  if (!wanted(self, approximate) || !gradient.is_contiguous() ||
      gradient.scalar_type() != self.scalar_type() ||
      gradient.sizes() != self.sizes()) {
    return at::cpu::gelu_backward(gradient, self, approximate);
  }
  const NoAutocast no_autocast;
  const Tensor result = at::detail::empty_cpu(self.sizes(), self.options());
  auto result_columns = columns(result);
  at::cpu::gelu_backward_outf(
      columns(gradient), columns(self), approximate, result_columns);
  return result;
}

} // namespace

void register_gelu_16bit(torch::Library& library) {
  library.impl("gelu", &gelu);
  library.impl("gelu_backward", &gelu_backward);
}

} // namespace ampkit::kernels
