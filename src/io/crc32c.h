#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ampkit::io {

namespace detail {

// The remainders of all bytes by Castagnoli's polynomial, bits reversed.
constexpr std::array<uint32_t, 256> make_crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
    }
    table[byte] = value;
  }
  return table;
}

inline constexpr auto kCrc32cTable = make_crc32c_table();

} // namespace detail

/// CRC-32C (RFC 3720, appendix B.4); "123456789" gives 0xE3069283.
constexpr uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~0U;
  for (const char byte : bytes) {
    const auto index = (value ^ static_cast<uint8_t>(byte)) & 0xFFU;
    value = (value >> 8) ^ detail::kCrc32cTable[index];
  }
  return ~value;
}

} // namespace ampkit::io
