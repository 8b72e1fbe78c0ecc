#pragma once

#include <string>

namespace ampkit::io {

/// What the operating system says of the errno `code`; thread-safe.
std::string system_message(int code);

/// Throws CheckpointError "<who>: cannot <action> <path>: <reason of errno>".
[[noreturn]] void throw_file_error(
    const char* who, const char* action, const std::string& path);

} // namespace ampkit::io
