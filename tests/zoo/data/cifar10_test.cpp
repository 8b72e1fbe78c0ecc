#include "data/cifar10.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::zoo {
namespace {

using std::string_literals::operator""s;

constexpr size_t kPixels = 3 * 32 * 32;
constexpr uintmax_t kFileSize = 10000 * (kPixels + 1);

/// A label and an image whose pixels count up from `first`.
std::string record(char label, int first) {
  std::string bytes(1, label);
  for (size_t i = 0; i < kPixels; ++i) {
    bytes.push_back(static_cast<char>(first + static_cast<int>(i)));
  }
  return bytes;
}

class Cifar10Test : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    io::write_text(folder_.path() + "/" + name, bytes);
    return folder_.path() + "/" + name;
  }
  // Records of zeros behind `bytes`, up to the size of a real file.
  void write_full(const std::string& name, const std::string& bytes) {
    std::filesystem::resize_file(write(name, bytes), kFileSize);
  }

  io::TemporaryFolder folder_;
};

TEST_F(Cifar10Test, RecordsOfAllFilesComeInOrder) {
  const auto dataset = detail::read_cifar10(
      {write("a", record(3, 0) + record(9, 1)),
       write("b", record(0, 2) + record(1, 3))},
      2);
  ASSERT_EQ(dataset->size(), 4);
  EXPECT_EQ(dataset->shape(), (ImageShape{3, 32, 32}));
  const std::vector<int64_t> labels{3, 9, 0, 1};
  std::vector<uint8_t> pixels(kPixels);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(dataset->label(i), labels[static_cast<size_t>(i)]);
    dataset->read(i, pixels);
    EXPECT_EQ(pixels.front(), i);
    EXPECT_EQ(pixels.back(), static_cast<uint8_t>(i + kPixels - 1));
  }
  EXPECT_EQ(dataset->class_names().at(9), "truck");
}

TEST_F(Cifar10Test, FolderWithTheRealFileNamesOpens) {
  write_full("test_batch.bin", record(7, 5));
  const auto test = open_cifar10(folder_.path(), Split::test);
  EXPECT_EQ(test->size(), 10000);
  EXPECT_EQ(test->label(0), 7);
  EXPECT_ERROR(
      open_cifar10(folder_.path(), Split::train),
      DataError,
      "data_batch_1.bin",
      "No such file");
}

TEST_F(Cifar10Test, FileOfAnotherSizeIsRefused) {
  write("test_batch.bin", record(0, 0));
  EXPECT_ERROR(
      open_cifar10(folder_.path(), Split::test),
      DataError,
      folder_.path() + "/test_batch.bin has 3073 bytes",
      "expected 30730000"s,
      "cifar-10-binary.tar.gz"s);
  const auto path = write("short", record(0, 0).substr(1));
  EXPECT_ERROR(
      detail::read_cifar10({path}, 1), DataError, path, "has 3072 bytes"s);
}

TEST_F(Cifar10Test, LabelOutOfRangeNamesTheRecord) {
  const auto path = write("a", record(0, 0) + record(10, 0));
  EXPECT_ERROR(
      detail::read_cifar10({path}, 2),
      DataError,
      path,
      "label 10 of record 1 (byte 3073)"s,
      "expected 0 to 9"s);
}

} // namespace
} // namespace ampkit::zoo
