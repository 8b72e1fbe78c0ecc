#pragma once

#include <cstdint>
#include <string>

#include "dist/file_descriptor.h"

namespace ampkit::dist {

/// Whether `address` is an IPv4 address of loopback, or localhost.
bool is_ipv4_loopback(const std::string& address);

/// A socket that listens on `address`, for which is_ipv4_loopback(), and no
/// other interface. Throws c10::DistNetworkError if the port is taken.
FileDescriptor listen_on_loopback(const std::string& address, uint16_t port);

/// A port of loopback that nobody uses and that nobody is given while this
/// lives; whoever knows it can listen on it.
class ReservedPort {
 public:
  /// Throws c10::DistNetworkError if there is none.
  ReservedPort();

  uint16_t port() const { return port_; }

 private:
  FileDescriptor socket_; // bound, and not listening
  uint16_t port_ = 0;
};

} // namespace ampkit::dist
