#include "data/cifar10.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "data/data_check.h"
#include "data/image_file.h"
#include "data/memory_dataset.h"

namespace ampkit::zoo {
namespace {

constexpr ImageShape kShape{3, 32, 32};
constexpr size_t kPixels = size_t{3} * 32 * 32;
constexpr size_t kRecord = 1 + kPixels; // a label, then the pixels
constexpr int64_t kImagesPerFile = 10000;
constexpr int kTrainFiles = 5;

const std::vector<std::string>& names() {
  static const std::vector<std::string> value{
      "airplane",
      "automobile",
      "bird",
      "cat",
      "deer",
      "dog",
      "frog",
      "horse",
      "ship",
      "truck"};
  return value;
}

// Appends the labels of one file and copies its pixels to `pixels`.
void read_records(
    const std::string& path,
    size_t count,
    std::vector<uint8_t>& labels,
    uint8_t* pixels) {
  const auto bytes = detail::read_file("open_cifar10", path);
  AMPKIT_CHECK_DATA(
      bytes.size() == count * kRecord,
      "open_cifar10: ",
      path,
      " has ",
      bytes.size(),
      " bytes, expected ",
      count * kRecord,
      " (",
      count,
      " records of ",
      kRecord,
      "); it is not of the binary version of CIFAR-10, or damaged: get "
      "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz again");
  for (size_t record = 0; record < count; ++record) {
    const uint8_t* start = bytes.data() + record * kRecord;
    AMPKIT_CHECK_DATA(
        *start < names().size(),
        "open_cifar10: label ",
        int{*start},
        " of record ",
        record,
        " (byte ",
        record * kRecord,
        ") of ",
        path,
        " is out of range, expected 0 to 9; the file is damaged or not of the "
        "binary version");
    labels.push_back(*start);
    std::memcpy(pixels + record * kPixels, start + 1, kPixels);
  }
}

} // namespace

std::shared_ptr<const ImageDataset> detail::read_cifar10(
    const std::vector<std::string>& paths, int64_t images_per_file) {
  const auto count = static_cast<size_t>(images_per_file);
  MemoryDataset::Content content{.shape = kShape, .class_names = names()};
  content.labels.reserve(paths.size() * count);
  content.pixels =
      std::make_unique_for_overwrite<uint8_t[]>(paths.size() * count * kPixels);
  for (size_t file = 0; file < paths.size(); ++file) {
    uint8_t* pixels = content.pixels.get() + file * count * kPixels;
    read_records(paths[file], count, content.labels, pixels);
  }
  return std::make_shared<MemoryDataset>(std::move(content));
}

std::shared_ptr<const ImageDataset> open_cifar10(
    const std::string& dir, Split split) {
  std::vector<std::string> paths;
  if (split == Split::test) {
    paths.push_back(dir + "/test_batch.bin");
  } else {
    for (int file = 1; file <= kTrainFiles; ++file) {
      paths.push_back(dir + "/data_batch_" + std::to_string(file) + ".bin");
    }
  }
  return detail::read_cifar10(paths, kImagesPerFile);
}

} // namespace ampkit::zoo
