#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ampkit::zoo {

/// `text` as it must stand in an HTML element or a quoted attribute. Bytes that
/// are no UTF-8 become U+FFFD.
std::string escape_html(std::string_view text);

/// A two-column table of names and values, which it escapes; empty for no rows.
std::string html_table(
    const std::vector<std::pair<std::string, std::string>>& rows);

/// "1,234,567"
std::string format_count(int64_t count);

/// Four significant digits, e.g. "0.03125", "1,250", "3e-05"; "NaN", "inf".
std::string format_number(double value);

/// "92.5 %" of a fraction.
std::string format_percent(double fraction);

/// "3 min 20 s"
std::string format_duration(double seconds);

/// "1 step", "2 steps"; `noun` takes an s.
std::string format_plural(int64_t count, const std::string& noun);

} // namespace ampkit::zoo
