#pragma once

// See ../../../process_group_gloo.h.

namespace gloo::transport {

/// A network interface. Made by ProcessGroupGloo::createDeviceForInterface()
/// and its siblings; held by shared pointers.
class Device;

/// Memory of a transfer. Made by a context; its destructor is LibTorch's.
class UnboundBuffer {
 public:
  UnboundBuffer() = delete;
  virtual ~UnboundBuffer();
};

} // namespace gloo::transport
