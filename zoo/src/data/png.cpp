#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>

#include "data/data_check.h"
#include "data/image_file.h"

namespace ampkit::zoo::detail {
namespace {

// As with JPEG: errors leave libpng by longjmp, so that the functions between
// guarded() and libpng own nothing.
struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::array<char, 128> message{};
  std::span<const uint8_t> bytes;
  size_t position = 0;
  uint8_t* pixels = nullptr; // the rows of the result, when decoding

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave(png_structp png, png_const_charp text) {
  auto* decoder = static_cast<Decoder*>(png_get_error_ptr(png));
  const size_t length =
      std::min(std::strlen(text), decoder->message.size() - 1);
  std::memcpy(decoder->message.data(), text, length);
  png_longjmp(png, 1);
}

// What libpng only warns of leaves the pixels whole.
void ignore(png_structp /*png*/, png_const_charp /*text*/) {}

void read_bytes(png_structp png, png_bytep target, size_t count) {
  auto* decoder = static_cast<Decoder*>(png_get_io_ptr(png));
  if (decoder->bytes.size() - decoder->position < count) {
    png_error(png, "the file ends too early");
  }
  std::memcpy(target, decoder->bytes.data() + decoder->position, count);
  decoder->position += count;
}

void read_header(Decoder& decoder) {
  png_set_read_fn(decoder.png, &decoder, read_bytes);
  png_read_info(decoder.png, decoder.info);
}

// Whatever the file holds becomes 8 bits of red, green and blue.
void set_transforms(png_structp png, png_infop info) {
  const int type = png_get_color_type(png, info);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  if (type == PNG_COLOR_TYPE_PALETTE) {
    png_set_palette_to_rgb(png);
  } else if ((type & PNG_COLOR_MASK_COLOR) == 0) {
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
  }
}

void decode_rows(Decoder& decoder) {
  set_transforms(decoder.png, decoder.info);
  const int passes = png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  const size_t stride = png_get_rowbytes(decoder.png, decoder.info);
  if (stride != 3 * size_t{png_get_image_width(decoder.png, decoder.info)}) {
    png_error(decoder.png, "a kind that cannot be turned into RGB");
  }
  const uint32_t height = png_get_image_height(decoder.png, decoder.info);
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < height; ++y) {
      png_read_row(decoder.png, decoder.pixels + y * stride, nullptr);
    }
  }
  png_read_end(decoder.png, nullptr);
}

// Whether `step` ran to its end.
bool guarded(Decoder& decoder, void (*step)(Decoder&)) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) {
    return false;
  }
  step(decoder);
  return true;
}

void run(const std::string& path, Decoder& decoder, void (*step)(Decoder&)) {
  AMPKIT_CHECK_DATA(
      guarded(decoder, step),
      "open_image_folder: ",
      path,
      " is a damaged PNG, found at byte ",
      decoder.position,
      " of ",
      decoder.bytes.size(),
      ": ",
      decoder.message.data(),
      "; replace or remove it");
}

} // namespace

Picture decode_png(const std::string& path, std::span<const uint8_t> bytes) {
  Decoder decoder;
  decoder.bytes = bytes;
  decoder.png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, leave, ignore);
  if (decoder.png != nullptr) {
    decoder.info = png_create_info_struct(decoder.png);
  }
  TORCH_CHECK(
      decoder.info != nullptr,
      "open_image_folder: libpng cannot be used: no memory, or not the version "
      "that ampkit was built with, ",
      PNG_LIBPNG_VER_STRING);
  run(path, decoder, read_header);
  Picture picture = make_picture(
      path,
      png_get_image_height(decoder.png, decoder.info),
      png_get_image_width(decoder.png, decoder.info));
  decoder.pixels = picture.rgb.get();
  run(path, decoder, decode_rows);
  return picture;
}

} // namespace ampkit::zoo::detail
