#pragma once

// See ../../process_group_gloo.h.

#include <chrono>

#include <gloo/transport/device.h>

namespace gloo {

/// The connections of a rank to the others. Made by ProcessGroupGloo; held by
/// shared pointers.
class Context {
 public:
  Context() = delete;
  void setTimeout(std::chrono::milliseconds timeout);
  void closeConnections();
};

} // namespace gloo
