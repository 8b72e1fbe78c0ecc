#include "report/html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace ampkit::zoo {
namespace {

/// Length of the UTF-8 sequence that `text` begins with; 0 if it is none.
size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length > text.size()) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80) {
      return 0;
    }
  }
  return length;
}

std::string_view escaped_character(std::string_view character) {
  switch (character.front()) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return character;
  }
}

/// Puts commas between groups of three digits; "-12345" and "1234.5" work.
std::string group_digits(std::string digits) {
  constexpr size_t kGroup = 3;
  const size_t first = digits.starts_with('-') ? 1 : 0;
  auto end = std::min(digits.find('.'), digits.size());
  while (end > first + kGroup) {
    end -= kGroup;
    digits.insert(end, 1, ',');
  }
  return digits;
}

} // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD"; // U+FFFD
      text.remove_prefix(1);
    } else {
      out += escaped_character(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string html_table(
    const std::vector<std::pair<std::string, std::string>>& rows) {
  if (rows.empty()) {
    return "";
  }
  std::string out = "<table class=\"facts\">\n";
  for (const auto& [name, value] : rows) {
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n",
        escape_html(name),
        escape_html(value));
  }
  return out + "</table>\n";
}

std::string format_count(int64_t count) {
  return group_digits(std::to_string(count));
}

std::string format_number(double value) {
  constexpr double kWhole = 1000; // from here on decimals say nothing
  constexpr double kTooLong = 1e15;
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::abs(value) >= kWhole && std::abs(value) < kTooLong) {
    return group_digits(fmt::format("{:.0f}", value));
  }
  return fmt::format("{:.4g}", value);
}

std::string format_percent(double fraction) {
  constexpr double kHundred = 100;
  return fmt::format("{:.2f} %", fraction * kHundred);
}

std::string format_duration(double seconds) {
  constexpr int64_t kMinute = 60;
  constexpr int64_t kHour = 3600;
  if (seconds < static_cast<double>(kMinute)) {
    return fmt::format("{:.1f} s", seconds);
  }
  const auto whole = std::llround(seconds);
  return whole < kHour
             ? fmt::format("{} min {} s", whole / kMinute, whole % kMinute)
             : fmt::format(
                   "{} h {} min", whole / kHour, whole % kHour / kMinute);
}

std::string format_plural(int64_t count, const std::string& noun) {
  return format_count(count) + " " + noun + (count == 1 ? "" : "s");
}

} // namespace ampkit::zoo
