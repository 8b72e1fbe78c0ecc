#pragma once

#include <string_view>

namespace ampkit::io {

/// Whether `text` is UTF-8 (RFC 3629): no overlong forms, no surrogates.
bool is_utf8(std::string_view text);

} // namespace ampkit::io
