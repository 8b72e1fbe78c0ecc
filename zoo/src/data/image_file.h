#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ampkit::zoo::detail {

/// A picture: rows from the top, a pixel's red, green and blue side by side.
struct Picture {
  int64_t height = 0;
  int64_t width = 0;
  std::unique_ptr<uint8_t[]> rgb; ///< 3 * height * width bytes
};

/// All bytes of a file. Throws DataError, beginning with `who`, if it cannot be
/// read.
std::vector<uint8_t> read_file(const char* who, const std::string& path);

/// Memory for a picture of that size, not initialised. Throws DataError, naming
/// `path`, if it is larger than any image in a data set should be.
Picture make_picture(const std::string& path, int64_t height, int64_t width);

/// Decode the content of a file; `path` is for messages. Each throws DataError
/// if it is damaged, be it ever so little, or of a kind that cannot be turned
/// into red, green and blue.
Picture decode_jpeg(const std::string& path, std::span<const uint8_t> bytes);
Picture decode_png(const std::string& path, std::span<const uint8_t> bytes);

/// Reads a JPEG or PNG file; which of the two, its content says.
Picture read_picture(const std::string& path);

} // namespace ampkit::zoo::detail
