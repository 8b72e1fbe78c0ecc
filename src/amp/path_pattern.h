#pragma once

#include <string_view>

namespace ampkit {

/// Whether `pattern` names the module at `path` or one above it. Names are
/// joined by dots; in a name of the pattern `*` stands for any letters, and the
/// name `**` for any number of names. The empty path is the network itself.
bool matches_path(std::string_view pattern, std::string_view path);

/// Whether the pattern is well formed: no empty name, unless it is empty as a
/// whole.
bool is_path_pattern(std::string_view pattern);

} // namespace ampkit
