#include "zoo/data/sample_files.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>

// After cstdio, whose FILE it uses.
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include <array>
#include <filesystem>

#include <c10/util/Exception.h>

#include "io/temporary_folder.h"

namespace ampkit::zoo {
namespace {

constexpr size_t kColors = 256;

std::vector<uint8_t> png_row(
    int y, int width, const PngKind& kind, int channels, PixelFunction pixel) {
  std::vector<uint8_t> samples;
  for (int x = 0; x < width; ++x) {
    for (int channel = 0; channel < channels; ++channel) {
      samples.push_back(pixel(y, x, channel));
      if (kind.bit_depth == 16) {
        samples.push_back(0x5A);
      }
    }
  }
  if (kind.bit_depth >= 8) {
    return samples;
  }
  const auto per_byte = static_cast<size_t>(8 / kind.bit_depth);
  std::vector<uint8_t> packed((samples.size() + per_byte - 1) / per_byte);
  for (size_t i = 0; i < samples.size(); ++i) {
    const int value = samples[i] >> (8 - kind.bit_depth);
    const size_t place = per_byte - 1 - i % per_byte;
    const auto shift = static_cast<int>(place) * kind.bit_depth;
    packed[i / per_byte] |= static_cast<uint8_t>(value << shift);
  }
  return packed;
}

void set_palette(png_structp png, png_infop info, int bit_depth) {
  std::array<png_color, kColors> palette{};
  for (size_t i = 0; i < kColors; ++i) {
    palette[i] = {
        static_cast<png_byte>(i),
        static_cast<png_byte>(255 - i),
        static_cast<png_byte>(i / 2)};
  }
  png_set_PLTE(png, info, palette.data(), 1 << bit_depth);
}

} // namespace

uint8_t sample_pixel(int y, int x, int channel) {
  return static_cast<uint8_t>(y * 7 + x * 3 + channel * 50 + (y * x) % 5);
}

void write_png(
    const std::string& path,
    int height,
    int width,
    const PngKind& kind,
    const PixelFunction& pixel) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  TORCH_CHECK(file != nullptr, "cannot write ", path);
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_init_io(png, file);
  png_set_IHDR(
      png,
      info,
      static_cast<png_uint_32>(width),
      static_cast<png_uint_32>(height),
      kind.bit_depth,
      kind.color_type,
      kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
      PNG_COMPRESSION_TYPE_DEFAULT,
      PNG_FILTER_TYPE_DEFAULT);
  if (kind.color_type == PNG_COLOR_TYPE_PALETTE) {
    set_palette(png, info, kind.bit_depth);
  }
  png_write_info(png, info);
  const int channels = png_get_channels(png, info);
  const int passes = png_set_interlace_handling(png);
  for (int pass = 0; pass < passes; ++pass) {
    for (int y = 0; y < height; ++y) {
      png_write_row(png, png_row(y, width, kind, channels, pixel).data());
    }
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  std::fclose(file);
}

void write_jpeg(
    const std::string& path,
    int height,
    int width,
    int components,
    bool progressive) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  TORCH_CHECK(file != nullptr, "cannot write ", path);
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = components;
  info.in_color_space = components == 1   ? JCS_GRAYSCALE
                        : components == 3 ? JCS_RGB
                                          : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) {
    jpeg_simple_progression(&info);
  }
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < height; ++y) {
    std::vector<uint8_t> row;
    for (int i = 0; i < width * components; ++i) {
      row.push_back(sample_pixel(y, i / components, i % components));
    }
    JSAMPROW start = row.data();
    jpeg_write_scanlines(&info, &start, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

std::string idx_bytes(
    uint32_t magic,
    const std::vector<uint32_t>& sizes,
    const std::string& content) {
  std::string bytes;
  const auto append = [&](uint32_t value) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      bytes.push_back(static_cast<char>(value >> shift));
    }
  };
  append(magic);
  for (const uint32_t size : sizes) {
    append(size);
  }
  return bytes + content;
}

std::string gzipped(const std::string& content) {
  const io::TemporaryFolder folder;
  const std::string path = folder.path() + "/packed";
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  return io::read_text(path);
}

std::string fashion_mnist() {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  return std::filesystem::exists(folder) ? folder : "";
}

} // namespace ampkit::zoo
