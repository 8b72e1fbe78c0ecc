#include "dist/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

sockaddr_in loopback_address(const char* text, uint16_t port) {
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_port = htons(port);
  TORCH_CHECK_VALUE(
      ::inet_pton(AF_INET, text, &local.sin_addr) == 1,
      "dist::init: MASTER_ADDR must be an address, got '",
      text,
      "'");
  return local;
}

// Connections of the last start may still be closing, and a reserved port is
// bound by the launcher: both are no hindrance with SO_REUSEADDR.
bool bind_socket(int file, const sockaddr_in& address) {
  const int on = 1;
  return ::setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
         ::bind(
             file,
             reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)) == 0;
}

FileDescriptor new_socket() {
  return FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

} // namespace

bool is_ipv4_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.");
}

FileDescriptor listen_on_loopback(const std::string& address, uint16_t port) {
  const auto* text = address == "localhost" ? "127.0.0.1" : address.c_str();
  const auto local = loopback_address(text, port);
  auto socket = new_socket();
  const bool listens = bind_socket(socket.number(), local) &&
                       ::listen(socket.number(), SOMAXCONN) == 0;
  if (!listens) {
    C10_THROW_ERROR(
        DistNetworkError,
        c10::str(
            "dist::init: rank 0 cannot listen on ",
            text,
            ":",
            port,
            ": ",
            std::strerror(errno),
            "; is another run using it? Set another MASTER_PORT"));
  }
  return socket;
}

ReservedPort::ReservedPort() : socket_(new_socket()) {
  auto local = loopback_address("127.0.0.1", 0);
  socklen_t size = sizeof(local);
  const bool bound =
      bind_socket(socket_.number(), local) &&
      ::getsockname(
          socket_.number(), reinterpret_cast<sockaddr*>(&local), &size) == 0;
  if (!bound) {
    C10_THROW_ERROR(
        DistNetworkError,
        c10::str("dist::launch: no free port: ", std::strerror(errno)));
  }
  port_ = ntohs(local.sin_port);
}

} // namespace ampkit::dist
