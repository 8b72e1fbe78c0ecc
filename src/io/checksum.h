#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ampkit::io {

/// XXH3 of 64 bits, seed 0. https://github.com/Cyan4973/xxHash
uint64_t checksum(std::span<const std::byte> bytes);

/// The 16 hexadecimal digits of a checksum.
std::string checksum_text(uint64_t value);

} // namespace ampkit::io
