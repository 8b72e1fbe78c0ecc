#include "io/utf8.h"

#include <cstddef>
#include <cstdint>

namespace ampkit::io {
namespace {

struct Form {
  size_t size;
  uint32_t lowest; // code point that needs this size
};

// By the first byte; size 0 where none may begin with it.
Form form_of(uint8_t first) {
  if (first < 0x80) {
    return {1, 0};
  }
  if (first >= 0xC0 && first < 0xE0) {
    return {2, 0x80};
  }
  if (first >= 0xE0 && first < 0xF0) {
    return {3, 0x800};
  }
  if (first >= 0xF0 && first < 0xF8) {
    return {4, 0x10000};
  }
  return {0, 0};
}

} // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto first = static_cast<uint8_t>(text.front());
    const auto [size, lowest] = form_of(first);
    if (size == 0 || size > text.size()) {
      return false;
    }
    uint32_t point = size == 1 ? first : first & (0x7FU >> size);
    for (size_t i = 1; i < size; ++i) {
      const auto next = static_cast<uint8_t>(text[i]);
      if ((next & 0xC0U) != 0x80U) {
        return false;
      }
      point = (point << 6) | (next & 0x3FU);
    }
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    if (point < lowest || point > 0x10FFFF || surrogate) {
      return false;
    }
    text.remove_prefix(size);
  }
  return true;
}

} // namespace ampkit::io
