#include "io/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace ampkit::io {
namespace {

// tables[n][byte]: the remainder of `byte` followed by n zero bytes, by the
// polynomial with its bits reversed. Eight of them take eight bytes at a time,
// since no lookup waits for another.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0U);
    }
    tables[0][byte] = value;
  }
  for (size_t n = 1; n < tables.size(); ++n) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[n - 1][byte];
      tables[n][byte] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();
static_assert(std::endian::native == std::endian::little);

} // namespace

uint32_t crc32(std::span<const std::byte> bytes) {
  uint32_t value = ~0U;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    word ^= value;
    value = 0;
    for (size_t i = 0; i < 8; ++i) {
      value ^= kTables[7 - i][(word >> (8 * i)) & 0xFFU];
    }
  }
  for (const std::byte byte : bytes) {
    const auto index = (value ^ std::to_integer<uint32_t>(byte)) & 0xFFU;
    value = (value >> 8) ^ kTables[0][index];
  }
  return ~value;
}

} // namespace ampkit::io
