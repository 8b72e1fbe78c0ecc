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

constexpr uint32_t kImageMagic = 0x0803;
constexpr uint32_t kLabelMagic = 0x0801;

/// Three grey images of 2 x 2 pixels, 0 to 11, with labels 1, 0, 9.
class IdxTest : public ::testing::Test {
 protected:
  IdxTest() {
    for (char pixel = 0; pixel < 12; ++pixel) {
      pixels_.push_back(pixel);
    }
    write_images(idx_bytes(kImageMagic, {3, 2, 2}, pixels_));
    write_labels(idx_bytes(kLabelMagic, {3}, labels_));
  }

  void write_images(const std::string& bytes, const std::string& ending = "") {
    io::write_text(images_path() + ending, bytes);
  }
  void write_labels(const std::string& bytes) {
    io::write_text(labels_path(), bytes);
  }
  std::string images_path() const {
    return folder_.path() + "/train-images-idx3-ubyte";
  }
  std::string labels_path() const {
    return folder_.path() + "/train-labels-idx1-ubyte";
  }
  std::shared_ptr<const ImageDataset> open() const {
    return open_idx(folder_.path(), Split::train);
  }

  io::TemporaryFolder folder_;
  std::string pixels_;
  std::string labels_{"\1\0\11", 3};
};

std::vector<uint8_t> all_pixels(const ImageDataset& dataset) {
  const auto one = static_cast<size_t>(dataset.shape().numel());
  std::vector<uint8_t> pixels(one * static_cast<size_t>(dataset.size()));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.read(i, std::span(pixels).subspan(one * i, one));
  }
  return pixels;
}

TEST_F(IdxTest, ImagesAndLabelsComeBack) {
  const auto dataset = open();
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->shape(), (ImageShape{1, 2, 2}));
  EXPECT_EQ(dataset->num_classes(), 10);
  EXPECT_EQ(dataset->class_names().at(9), "9");
  EXPECT_EQ(
      all_pixels(*dataset),
      std::vector<uint8_t>(pixels_.begin(), pixels_.end()));
  EXPECT_EQ(dataset->label(0), 1);
  EXPECT_EQ(dataset->label(1), 0);
  EXPECT_EQ(dataset->label(2), 9);
}

TEST_F(IdxTest, PackedFileGivesTheSameAsThePlainOne) {
  const auto plain = all_pixels(*open());
  std::filesystem::remove(images_path());
  write_images(gzipped(idx_bytes(kImageMagic, {3, 2, 2}, pixels_)), ".gz");
  EXPECT_EQ(all_pixels(*open()), plain);
}

TEST_F(IdxTest, NormalizationIsThatOfAllPixels) {
  const auto found = open()->normalization();
  // 0 to 11: mean 5.5, variance (12^2 - 1) / 12.
  EXPECT_DOUBLE_EQ(found.mean.at(0), 5.5 / 255);
  EXPECT_DOUBLE_EQ(found.std.at(0), std::sqrt(143.0 / 12) / 255);
}

TEST_F(IdxTest, ConstantImagesAreNotDividedByZero) {
  write_images(idx_bytes(kImageMagic, {3, 2, 2}, std::string(12, '\7')));
  EXPECT_EQ(open()->normalization().std.at(0), 1);
}

TEST_F(IdxTest, FirstImagesAreThoseOfTheWhole) {
  const auto two = first_images(open(), 2);
  EXPECT_EQ(two->size(), 2);
  EXPECT_EQ(
      all_pixels(*two),
      std::vector<uint8_t>(pixels_.begin(), pixels_.begin() + 8));
  EXPECT_ERROR(two->label(2), c10::ValueError, "[0, 2)", "got 2");
  EXPECT_ERROR(first_images(open(), 4), c10::ValueError, "[1, 3]", "got 4");
}

TEST_F(IdxTest, IndexAndBufferThatDoNotFitAreRefused) {
  const auto dataset = open();
  std::vector<uint8_t> pixels(3);
  EXPECT_ERROR(
      dataset->read(0, pixels), c10::ValueError, "numel() = 4", "got 3");
  pixels.resize(4);
  EXPECT_ERROR(dataset->read(3, pixels), c10::ValueError, "[0, 3)", "got 3");
  EXPECT_ERROR(dataset->label(-1), c10::ValueError, "got -1");
}

TEST_F(IdxTest, MissingFileSaysHowToGetIt) {
  EXPECT_ERROR(
      open_idx(folder_.path(), Split::test),
      DataError,
      "t10k-images-idx3-ubyte.gz"s,
      folder_.path(),
      "apt-get install dataset-fashion-mnist"s);
}

TEST_F(IdxTest, WrongMagicNumberIsNamed) {
  write_images(idx_bytes(kLabelMagic, {3, 2, 2}, pixels_));
  EXPECT_ERROR(
      open(), DataError, images_path(), "magic number 2049"s, "expected 2051"s);
}

TEST_F(IdxTest, FileThatEndsTooEarlyNamesTheByte) {
  write_images(idx_bytes(kImageMagic, {3, 2, 2}, pixels_.substr(1)));
  EXPECT_ERROR(
      open(), DataError, images_path(), "ends at byte 27"s, "expected 28"s);
  write_images("\0");
  EXPECT_ERROR(open(), DataError, images_path(), "magic number"s);
  write_images("");
  EXPECT_ERROR(open(), DataError, images_path(), "ends at byte 0"s);
}

TEST_F(IdxTest, FileThatGoesOnIsRefused) {
  write_images(idx_bytes(kImageMagic, {3, 2, 2}, pixels_ + "x"));
  EXPECT_ERROR(open(), DataError, images_path(), "goes on after byte 28"s);
}

TEST_F(IdxTest, HugeSizesAreRefusedBeforeMemoryIsAskedFor) {
  write_images(idx_bytes(kImageMagic, {0xFFFFFFFF, 65535, 65535}, pixels_));
  EXPECT_ERROR(open(), DataError, images_path(), "can hold"s);
  write_images(idx_bytes(kImageMagic, {3, 70000, 2}, pixels_));
  EXPECT_ERROR(open(), DataError, "2 x 70000", "at most 65535");
  write_images(idx_bytes(kImageMagic, {0, 2, 2}, ""));
  EXPECT_ERROR(open(), DataError, images_path(), "is 0"s);
}

TEST_F(IdxTest, CountsOfImagesAndLabelsMustAgree) {
  write_labels(idx_bytes(kLabelMagic, {2}, labels_.substr(0, 2)));
  EXPECT_ERROR(open(), DataError, "2 labels"s, "3 images"s, labels_path());
}

TEST_F(IdxTest, LabelOutOfRangeNamesTheRecord) {
  EXPECT_ERROR(
      open_idx(folder_.path(), Split::train, 9),
      DataError,
      "label 9 of record 2 (byte 10)"s,
      "expected 0 to 8"s,
      labels_path());
  EXPECT_ERROR(
      open_idx(folder_.path(), Split::train, 0),
      c10::ValueError,
      "num_classes",
      "got 0");
}

// Deflate has its checksum: nothing that is not the original may come out.
TEST_F(IdxTest, DamagedPackedFileThrowsOrGivesTheOriginal) {
  std::filesystem::remove(images_path());
  const auto packed = gzipped(idx_bytes(kImageMagic, {3, 2, 2}, pixels_));
  const std::vector<uint8_t> original(pixels_.begin(), pixels_.end());
  for (size_t length = 0; length < packed.size(); ++length) {
    write_images(packed.substr(0, length), ".gz");
    EXPECT_ERROR(open(), DataError, images_path());
  }
  int refused = 0;
  for (size_t bit = 0; bit < packed.size() * 8; ++bit) {
    std::string flipped = packed;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write_images(flipped, ".gz");
    try {
      EXPECT_EQ(all_pixels(*open()), original) << "bit " << bit;
    } catch (const DataError&) {
      ++refused;
    }
  }
  // What may change is time, system and flags in the header of 10 bytes.
  EXPECT_GT(refused, static_cast<int>(packed.size() - 10) * 8);
}

TEST_F(IdxTest, DamagedPlainFileThrowsOrHasTheRightSize) {
  std::mt19937 random(1);
  const auto images = idx_bytes(kImageMagic, {3, 2, 2}, pixels_);
  const int trials = io::long_run() ? 20000 : 500;
  for (int trial = 0; trial < trials; ++trial) {
    write_images(io::damaged(images, random));
    try {
      EXPECT_EQ(all_pixels(*open()).size(), pixels_.size());
    } catch (const DataError& error) {
      EXPECT_THAT(error.msg(), ::testing::HasSubstr(folder_.path()));
    }
  }
}

TEST(FashionMnistTest, HasThePublishedSizesAndStatistics) {
  if (fashion_mnist().empty()) {
    GTEST_SKIP() << "Debian's dataset-fashion-mnist is not installed";
  }
  const auto train = open_idx(fashion_mnist(), Split::train);
  const auto test = open_idx(fashion_mnist(), Split::test);
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(test->size(), 10000);
  EXPECT_EQ(train->shape(), (ImageShape{1, 28, 28}));
  // Equally many of each class, as its authors say.
  std::vector<int> counts(10);
  for (int64_t i = 0; i < train->size(); ++i) {
    ++counts.at(static_cast<size_t>(train->label(i)));
  }
  EXPECT_EQ(counts, std::vector<int>(10, 6000));
  EXPECT_NEAR(train->normalization().mean.at(0), 0.286, 5e-4);
  EXPECT_NEAR(train->normalization().std.at(0), 0.353, 5e-4);
}

} // namespace
} // namespace ampkit::zoo
