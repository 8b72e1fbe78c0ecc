#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ampkit::zoo {

/// Value of `channel` at (y, x) of an image that a test writes.
using PixelFunction = std::function<uint8_t(int y, int x, int channel)>;

/// A colourful image without symmetry, in which no two neighbours are equal.
uint8_t sample_pixel(int y, int x, int channel);

/// What write_png() writes, in libpng's terms.
struct PngKind {
  int color_type;
  int bit_depth = 8;
  bool interlaced = false;
};

/// Writes a PNG file whose samples, palette indices included, are `pixel`; of
/// fewer than 8 bits the upper ones are kept, of 16 the lower byte is 0x5A. The
/// palette maps i to (i, 255 - i, i / 2).
void write_png(
    const std::string& path,
    int height,
    int width,
    const PngKind& kind,
    const PixelFunction& pixel = sample_pixel);

/// Writes a JPEG file of 1 (grey), 3 (YCbCr) or 4 (Adobe CMYK) components.
void write_jpeg(
    const std::string& path,
    int height,
    int width,
    int components = 3,
    bool progressive = false);

/// An IDX file: magic number, sizes, bytes.
std::string idx_bytes(
    uint32_t magic,
    const std::vector<uint32_t>& sizes,
    const std::string& content);

/// `content` as gzip packs it.
std::string gzipped(const std::string& content);

/// Fashion-MNIST of Debian's package, or an empty string where it is missing.
std::string fashion_mnist();

} // namespace ampkit::zoo
