#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

namespace ampkit {

/// Brings a small tensor from a device to the host while nobody waits: it is
/// read when it has arrived, which is later.
class LaggedCopy {
 public:
  /// Starts a copy, unless one is under way.
  void send(const at::Tensor& tensor);

  bool under_way() const { return host_.defined(); }

  /// The copy that was sent, once it has arrived; then another can be sent.
  std::optional<at::Tensor> receive();

 private:
  at::Tensor host_;
  std::optional<c10::Event> arrived_; // none for a copy within the host
};

} // namespace ampkit
