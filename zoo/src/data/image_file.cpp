#include "data/image_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "data/data_check.h"

namespace ampkit::zoo::detail {
namespace {

// 400 MB of pixels: a damaged header asks for more sooner than a real image.
constexpr int64_t kMaxPixels = int64_t{1} << 27U;
constexpr std::array<uint8_t, 3> kJpegStart{0xFF, 0xD8, 0xFF};
constexpr std::array<uint8_t, 4> kPngStart{0x89, 'P', 'N', 'G'};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::string reason(int code) {
  return std::generic_category().message(code);
}

template <size_t size>
bool starts_with(
    std::span<const uint8_t> bytes, const std::array<uint8_t, size>& start) {
  return bytes.size() >= size &&
         std::equal(start.begin(), start.end(), bytes.begin());
}

} // namespace

std::vector<uint8_t> read_file(const char* who, const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  AMPKIT_CHECK_DATA(!error, who, ": cannot read ", path, ": ", error.message());
  const std::unique_ptr<std::FILE, CloseFile> file(
      std::fopen(path.c_str(), "rbe"));
  AMPKIT_CHECK_DATA(
      file != nullptr, who, ": cannot open ", path, ": ", reason(errno));
  std::vector<uint8_t> bytes(size);
  const size_t got = std::fread(bytes.data(), 1, bytes.size(), file.get());
  AMPKIT_CHECK_DATA(
      got == size,
      who,
      ": ",
      path,
      " ends at byte ",
      got,
      ", expected ",
      size,
      std::ferror(file.get()) != 0 ? ": " + reason(errno) : std::string());
  return bytes;
}

Picture make_picture(const std::string& path, int64_t height, int64_t width) {
  AMPKIT_CHECK_DATA(
      height > 0 && width > 0 && height <= kMaxPixels / width,
      "open_image_folder: ",
      path,
      " says that it has ",
      width,
      " x ",
      height,
      " pixels, expected at most ",
      kMaxPixels,
      "; it is damaged, or make it smaller");
  return {
      height,
      width,
      std::make_unique_for_overwrite<uint8_t[]>(
          static_cast<size_t>(3 * height * width))};
}

Picture read_picture(const std::string& path) {
  const auto bytes = read_file("open_image_folder", path);
  if (starts_with(bytes, kJpegStart)) {
    return decode_jpeg(path, bytes);
  }
  AMPKIT_CHECK_DATA(
      starts_with(bytes, kPngStart),
      "open_image_folder: ",
      path,
      " (",
      bytes.size(),
      " bytes) does not begin as a JPEG (FF D8 FF) or PNG (89 50 4E 47) does; "
      "it is damaged or of another format: replace, convert or remove it");
  return decode_png(path, bytes);
}

} // namespace ampkit::zoo::detail
