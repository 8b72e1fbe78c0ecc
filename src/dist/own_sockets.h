#pragma once

#include <cstdint>
#include <vector>

namespace ampkit::dist {

/// A socket of this process; its number alone could be another's by now.
struct OwnSocket {
  int descriptor = -1;
  uint64_t inode = 0;

  bool operator==(const OwnSocket&) const = default;
};

/// Those that are open now. None where there is no /proc.
std::vector<OwnSocket> open_sockets();

/// Those that are connected now and are not among `before`.
std::vector<OwnSocket> connected_since(const std::vector<OwnSocket>& before);

/// Ends the connection for both sides, if it still is that socket: whoever
/// reads or writes, here too, finds it closed.
void shut_down(const OwnSocket& socket);

} // namespace ampkit::dist
