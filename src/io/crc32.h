#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ampkit::io {

/// CRC-32 as zip files have it (ISO 3309); "123456789" gives 0xCBF43926.
uint32_t crc32(std::span<const std::byte> bytes);

} // namespace ampkit::io
