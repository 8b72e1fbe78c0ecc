#include "io/file_error.h"

#include <cerrno>
#include <system_error>

#include <ampkit/error.h>

namespace ampkit::io {

std::string system_message(int code) {
  return std::generic_category().message(code);
}

void throw_file_error(
    const char* who, const char* action, const std::string& path) {
  const std::string reason = system_message(errno);
  AMPKIT_CHECK_CHECKPOINT(
      false, who, ": cannot ", action, " ", path, ": ", reason);
  __builtin_unreachable();
}

} // namespace ampkit::io
