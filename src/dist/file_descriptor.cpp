#include "dist/file_descriptor.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include <c10/util/Exception.h>

namespace ampkit::dist {

Pipe::Pipe() {
  int ends[2] = {-1, -1};
  TORCH_CHECK(
      ::pipe2(ends, O_CLOEXEC) == 0,
      "dist::launch: no pipe: ",
      std::strerror(errno));
  read = FileDescriptor(ends[0]);
  write = FileDescriptor(ends[1]);
}

} // namespace ampkit::dist
