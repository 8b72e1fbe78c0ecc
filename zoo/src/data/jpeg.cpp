#include <csetjmp>
#include <cstddef>
#include <cstdio>

// After cstdio, whose FILE it uses, and before jerror.h, whose numbers depend
// on its settings.
#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <array>

#include "data/data_check.h"
#include "data/image_file.h"

namespace ampkit::zoo::detail {
namespace {

// What libjpeg calls when something is wrong must not return, and no C++
// exception may pass through C: it leaves by longjmp. So the functions between
// guarded() and libjpeg own nothing.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr manager{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  std::span<const uint8_t> bytes;
  uint8_t* pixels = nullptr; // the rows of the result, when decoding

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  // Harmless where it was never created.
  ~Decoder() { jpeg_destroy_decompress(&info); }
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* decoder = static_cast<Decoder*>(info->client_data);
  info->err->format_message(info, decoder->message.data());
  std::longjmp(decoder->jump, 1);
}

// Damage that libjpeg papers over with grey; other warnings are about
// oddities that leave the pixels whole.
bool is_damage(int code) {
  switch (code) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
      return true;
    default:
      return false;
  }
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && is_damage(info->err->msg_code)) {
    leave(info);
  }
}

void read_header(Decoder& decoder) {
  jpeg_decompress_struct* info = &decoder.info;
  jpeg_create_decompress(info);
  jpeg_mem_src(
      info,
      decoder.bytes.data(),
      static_cast<unsigned long>(decoder.bytes.size()));
  jpeg_read_header(info, TRUE);
  const bool four = info->num_components == 4;
  info->out_color_space = four ? JCS_CMYK : JCS_RGB;
}

void decode_rows(Decoder& decoder) {
  jpeg_decompress_struct* info = &decoder.info;
  jpeg_start_decompress(info);
  const size_t stride =
      size_t{info->output_width} * static_cast<size_t>(info->output_components);
  while (info->output_scanline < info->output_height) {
    JSAMPROW row = decoder.pixels + info->output_scanline * stride;
    jpeg_read_scanlines(info, &row, 1);
  }
  jpeg_finish_decompress(info);
}

// Whether `step` ran to its end.
bool guarded(Decoder& decoder, void (*step)(Decoder&)) {
  if (setjmp(decoder.jump) != 0) {
    return false;
  }
  step(decoder);
  return true;
}

void run(const std::string& path, Decoder& decoder, void (*step)(Decoder&)) {
  const bool done = guarded(decoder, step);
  const auto* source = decoder.info.src;
  const size_t size = decoder.bytes.size();
  AMPKIT_CHECK_DATA(
      done,
      "open_image_folder: ",
      path,
      " is a damaged JPEG, found at byte ",
      source == nullptr ? 0 : size - std::min(size, source->bytes_in_buffer),
      " of ",
      size,
      ": ",
      decoder.message.data(),
      "; replace or remove it");
}

// As Pillow does it: the file's values are ink subtracted from white, and the
// result is what is left of each colour times what is left by black.
void cmyk_to_rgb(std::span<const uint8_t> cmyk, uint8_t* rgb) {
  for (size_t i = 0; i + 3 < cmyk.size(); i += 4) {
    const uint32_t key = cmyk[i + 3];
    for (size_t channel = 0; channel < 3; ++channel) {
      const uint32_t product = (255U - cmyk[i + channel]) * key + 128U;
      const uint32_t ink = (product + (product >> 8U)) >> 8U;
      *rgb++ = static_cast<uint8_t>(key - std::min(key, ink));
    }
  }
}

} // namespace

Picture decode_jpeg(const std::string& path, std::span<const uint8_t> bytes) {
  Decoder decoder;
  decoder.info.err = jpeg_std_error(&decoder.manager);
  decoder.info.client_data = &decoder;
  decoder.manager.error_exit = leave;
  decoder.manager.emit_message = on_message;
  decoder.bytes = bytes;
  run(path, decoder, read_header);
  Picture picture =
      make_picture(path, decoder.info.image_height, decoder.info.image_width);
  if (decoder.info.out_color_space == JCS_RGB) {
    decoder.pixels = picture.rgb.get();
    run(path, decoder, decode_rows);
    return picture;
  }
  const auto size = static_cast<size_t>(4 * picture.height * picture.width);
  const auto cmyk = std::make_unique_for_overwrite<uint8_t[]>(size);
  decoder.pixels = cmyk.get();
  run(path, decoder, decode_rows);
  cmyk_to_rgb({cmyk.get(), size}, picture.rgb.get());
  return picture;
}

} // namespace ampkit::zoo::detail
