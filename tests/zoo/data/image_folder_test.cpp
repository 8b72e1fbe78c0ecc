#include <png.h>
#include <zlib.h>

#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include <ampkit/zoo/data/image_dataset.h>

#include "io/temporary_folder.h"
#include "support/errors.h"
#include "zoo/data/sample_files.h"

namespace ampkit::zoo {
namespace {

using std::string_literals::operator""s;

namespace fs = std::filesystem;

constexpr int kHeight = 12;
constexpr int kWidth = 20;

/// Folders with images of kHeight x kWidth, opened at that size: no scaling.
class ImageFolderTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) {
    const fs::path full = fs::path(folder_.path()) / name;
    fs::create_directories(full.parent_path());
    return full.string();
  }
  void png(
      const std::string& name,
      const PngKind& kind,
      const PixelFunction& pixel = sample_pixel) {
    write_png(path(name), kHeight, kWidth, kind, pixel);
  }
  std::shared_ptr<const ImageDataset> open(
      int64_t height = kHeight, int64_t width = kWidth) const {
    return open_image_folder(
        folder_.path(), {.height = height, .width = width});
  }
  static std::vector<uint8_t> read(
      const ImageDataset& dataset, int64_t index = 0) {
    std::vector<uint8_t> pixels(static_cast<size_t>(dataset.shape().numel()));
    dataset.read(index, pixels);
    return pixels;
  }
  // The only image must be what `pixel` says.
  void expect_pixels(const PixelFunction& pixel) {
    std::vector<uint8_t> expected;
    for (int channel = 0; channel < 3; ++channel) {
      for (int y = 0; y < kHeight; ++y) {
        for (int x = 0; x < kWidth; ++x) {
          expected.push_back(pixel(y, x, channel));
        }
      }
    }
    EXPECT_EQ(read(*open()), expected);
  }

  io::TemporaryFolder folder_;
};

TEST_F(ImageFolderTest, FoldersAreClassesInTheOrderOfTheirNames) {
  png("zebra/1.png", {PNG_COLOR_TYPE_RGB});
  png("ant/2.PNG", {PNG_COLOR_TYPE_RGB});
  png("ant/deeper/1.png", {PNG_COLOR_TYPE_RGB});
  png("ant/.hidden.txt", {PNG_COLOR_TYPE_RGB});
  png(".cache/1.png", {PNG_COLOR_TYPE_RGB});
  io::write_text(path("README.txt"), "not a class");
  const auto dataset = open();
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"ant", "zebra"}));
  EXPECT_EQ(dataset->num_classes(), 2);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->label(1), 0);
  EXPECT_EQ(dataset->label(2), 1);
  EXPECT_EQ(dataset->normalization().mean.size(), 3);
}

TEST_F(ImageFolderTest, ColourPngComesBackExactly) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB});
  expect_pixels(sample_pixel);
}

TEST_F(ImageFolderTest, InterlacedPngComesBackExactly) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB, 8, true});
  expect_pixels(sample_pixel);
}

TEST_F(ImageFolderTest, AlphaIsIgnored) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB_ALPHA});
  expect_pixels(sample_pixel);
}

TEST_F(ImageFolderTest, OfSixteenBitsTheUpperEightAreKept) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB_ALPHA, 16});
  expect_pixels(sample_pixel);
}

TEST_F(ImageFolderTest, GreyBecomesEqualColours) {
  const auto grey = [](int y, int x, int) { return sample_pixel(y, x, 0); };
  for (const int type : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA}) {
    for (const int bits : {8, 16}) {
      png("a/1.png", {type, bits});
      expect_pixels(grey);
    }
  }
}

TEST_F(ImageFolderTest, GreyOfFewBitsIsSpreadOverTheWholeRange) {
  for (const int bits : {1, 2, 4}) {
    png("a/1.png", {PNG_COLOR_TYPE_GRAY, bits});
    expect_pixels([&](int y, int x, int) {
      const int value = sample_pixel(y, x, 0) >> (8 - bits);
      return static_cast<uint8_t>(value * 255 / ((1 << bits) - 1));
    });
  }
}

TEST_F(ImageFolderTest, PaletteIsLookedUp) {
  for (const int bits : {1, 4, 8}) {
    png("a/1.png", {PNG_COLOR_TYPE_PALETTE, bits});
    expect_pixels([&](int y, int x, int channel) {
      const int i = sample_pixel(y, x, 0) >> (8 - bits);
      return static_cast<uint8_t>(
          channel == 0   ? i
          : channel == 1 ? 255 - i
                         : i / 2);
    });
  }
}

TEST_F(ImageFolderTest, ContentDecidesNotTheName) {
  png("a/1.jpg", {PNG_COLOR_TYPE_RGB});
  expect_pixels(sample_pixel);
}

TEST_F(ImageFolderTest, MiddleIsKeptWhenTheProportionsDiffer) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB});
  // Same height: the middle columns, untouched.
  const auto pixels = read(*open(kHeight, kHeight));
  for (int x = 0; x < kHeight; ++x) {
    EXPECT_EQ(
        pixels[static_cast<size_t>(x)],
        sample_pixel(0, x + (kWidth - kHeight) / 2, 0));
  }
}

TEST_F(ImageFolderTest, HalfTheSizeKeepsTheMean) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB}, [](int, int x, int) {
    return static_cast<uint8_t>(x % 2 == 0 ? 100 : 200);
  });
  // Antialiased: stripes of one pixel become grey, but for the borders.
  const auto pixels = read(*open(kHeight / 2, kWidth / 2));
  for (size_t x = 1; x + 1 < kWidth / 2; ++x) {
    EXPECT_EQ(pixels[x], 150);
  }
}

TEST_F(ImageFolderTest, JpegIsCloseToWhatWasWritten) {
  write_jpeg(path("a/1.jpg"), kHeight, kWidth, 1);
  const auto pixels = read(*open());
  const auto plane = static_cast<size_t>(kHeight * kWidth);
  double error = 0;
  for (size_t i = 0; i < plane; ++i) {
    EXPECT_EQ(pixels[i], pixels[i + plane]); // grey
    error += std::abs(
        pixels[i] -
        int{sample_pixel(
            static_cast<int>(i) / kWidth, static_cast<int>(i) % kWidth, 0)});
  }
  EXPECT_LT(error / static_cast<double>(plane), 4);
}

TEST_F(ImageFolderTest, FolderWithoutClassesIsRefused) {
  EXPECT_ERROR(open(), DataError, folder_.path(), "one a class"s);
  EXPECT_ERROR(
      open_image_folder(folder_.path() + "/none", {}),
      DataError,
      "/none",
      "No such file");
  EXPECT_ERROR(open(0), c10::ValueError, "height", "got 0");
}

TEST_F(ImageFolderTest, EmptyClassIsNamed) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB});
  fs::create_directory(path("b"));
  EXPECT_ERROR(open(), DataError, folder_.path() + "/b", "no images"s);
}

TEST_F(ImageFolderTest, FileOfAnotherKindIsNamed) {
  io::write_text(path("a/1.webp"), "x");
  EXPECT_ERROR(open(), DataError, "a/1.webp", "neither .jpg");
  fs::rename(path("a/1.webp"), path("a/1.jpg"));
  const auto dataset = open();
  EXPECT_ERROR(read(*dataset), DataError, "a/1.jpg (1 bytes)", "PNG");
}

TEST_F(ImageFolderTest, LinkToAFolderAboveDoesNotLoop) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB});
  fs::create_directory_symlink("..", path("a/up"));
  EXPECT_ERROR(open(), DataError, "a/up", "link to a folder above");
}

TEST_F(ImageFolderTest, FileThatVanishesIsNamed) {
  png("a/1.png", {PNG_COLOR_TYPE_RGB});
  const auto dataset = open();
  fs::remove(path("a/1.png"));
  EXPECT_ERROR(read(*dataset), DataError, path("a/1.png"), "No such file"s);
}

TEST_F(ImageFolderTest, PngThatClaimsToBeHugeIsRefused) {
  png("a/1.png", {PNG_COLOR_TYPE_GRAY});
  std::string bytes = io::read_text(path("a/1.png"));
  bytes.replace(16, 8, std::string("\0\1\0\0\0\1\0\0", 8)); // 65536 x 65536
  const auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + 12, 17));
  for (size_t i = 0; i < 4; ++i) {
    bytes[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  }
  io::write_text(path("a/1.png"), bytes);
  EXPECT_ERROR(read(*open()), DataError, "a/1.png", "65536 x 65536");
}

/// Cut off anywhere, or damaged, an image must throw, naming the file, or give
/// an image: never crash.
class DamagedImageTest : public ImageFolderTest,
                         public ::testing::WithParamInterface<const char*> {
 protected:
  DamagedImageTest() {
    const std::string kind = GetParam();
    name_ = path("a/image.png");
    if (kind == "png") {
      png("a/image.png", {PNG_COLOR_TYPE_RGB});
    } else if (kind == "interlaced palette png") {
      png("a/image.png", {PNG_COLOR_TYPE_PALETTE, 4, true});
    } else {
      const int components = kind == "cmyk jpeg" ? 4 : 3;
      write_jpeg(
          name_, kHeight, kWidth, components, kind == "progressive jpeg");
    }
    bytes_ = io::read_text(name_);
  }

  std::string name_;
  std::string bytes_;
};

TEST_P(DamagedImageTest, TruncatedAnywhereThrowsAndNamesTheFile) {
  const auto dataset = open();
  read(*dataset); // whole, it is fine
  for (size_t length = 0; length < bytes_.size(); ++length) {
    io::write_text(name_, bytes_.substr(0, length));
    EXPECT_ERROR(read(*dataset), DataError, name_);
  }
}

TEST_P(DamagedImageTest, RandomDamageNeverCrashes) {
  const auto dataset = open();
  std::mt19937 random(2);
  const int trials = io::long_run() ? 20000 : 1000;
  int refused = 0;
  for (int trial = 0; trial < trials; ++trial) {
    io::write_text(name_, io::damaged(bytes_, random));
    try {
      read(*dataset);
    } catch (const DataError& error) {
      ++refused;
      EXPECT_THAT(error.msg(), ::testing::HasSubstr(name_));
    }
  }
  EXPECT_GT(refused, trials / 5); // those cut off, at least
}

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    DamagedImageTest,
    ::testing::Values(
        "png",
        "interlaced palette png",
        "jpeg",
        "progressive jpeg",
        "cmyk jpeg"),
    [](const auto& test) {
      std::string name = test.param;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

} // namespace
} // namespace ampkit::zoo
