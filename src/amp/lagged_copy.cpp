#include "amp/lagged_copy.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ampkit {

void LaggedCopy::send(const at::Tensor& tensor) {
  if (under_way()) {
    return;
  }
  if (tensor.is_cpu()) {
    host_ = tensor.clone();
    return;
  }
  // Only into pinned memory does a copy go on while the host does.
  host_ = at::empty_like(
      tensor, at::TensorOptions().device(at::kCPU).pinned_memory(true));
  host_.copy_(tensor, /*non_blocking=*/true);
  const auto device = tensor.device();
  arrived_.emplace(device.type());
  arrived_->record(
      c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

std::optional<at::Tensor> LaggedCopy::receive() {
  if (!under_way() || (arrived_ && !arrived_->query())) {
    return std::nullopt;
  }
  arrived_.reset();
  return std::exchange(host_, at::Tensor());
}

} // namespace ampkit
