#include "dist/own_sockets.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

#include <sys/socket.h>
#include <sys/stat.h>

namespace ampkit::dist {
namespace {

// 0: no socket.
uint64_t inode_of_socket(int descriptor) {
  struct stat found{};
  return fstat(descriptor, &found) == 0 && S_ISSOCK(found.st_mode)
             ? static_cast<uint64_t>(found.st_ino)
             : 0;
}

bool is_connected(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const pointer = reinterpret_cast<sockaddr*>(&address);
  return getpeername(descriptor, pointer, &size) == 0;
}

} // namespace

std::vector<OwnSocket> open_sockets() {
  std::vector<OwnSocket> found;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const auto name = entry.path().filename().string();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (const auto inode = inode_of_socket(descriptor); inode != 0) {
      found.push_back({descriptor, inode});
    }
  }
  return found;
}

std::vector<OwnSocket> connected_since(const std::vector<OwnSocket>& before) {
  auto found = open_sockets();
  std::erase_if(found, [&](const auto& socket) {
    return std::ranges::find(before, socket) != before.end() ||
           !is_connected(socket.descriptor);
  });
  return found;
}

void shut_down(const OwnSocket& socket) {
  if (inode_of_socket(socket.descriptor) == socket.inode) {
    ::shutdown(socket.descriptor, SHUT_RDWR);
  }
}

} // namespace ampkit::dist
