#include "data/memory_dataset.h"

#include <cstring>

#include <c10/util/Exception.h>

namespace ampkit::zoo::detail {

void check_index(const ImageDataset& dataset, int64_t index) {
  TORCH_CHECK_VALUE(
      index >= 0 && index < dataset.size(),
      "ImageDataset: index must be in [0, ",
      dataset.size(),
      "), got ",
      index);
}

void check_buffer(const ImageDataset& dataset, size_t bytes) {
  TORCH_CHECK_VALUE(
      static_cast<int64_t>(bytes) == dataset.shape().numel(),
      "ImageDataset::read: chw must have shape().numel() = ",
      dataset.shape().numel(),
      " bytes, got ",
      bytes);
}

int64_t MemoryDataset::size() const {
  return static_cast<int64_t>(content_.labels.size());
}

int64_t MemoryDataset::num_classes() const {
  return static_cast<int64_t>(content_.class_names.size());
}

std::vector<std::string> MemoryDataset::class_names() const {
  return content_.class_names;
}

void MemoryDataset::read(int64_t index, std::span<uint8_t> chw) const {
  check_index(*this, index);
  check_buffer(*this, chw.size());
  const uint8_t* image = content_.pixels.get() + index * shape().numel();
  std::memcpy(chw.data(), image, chw.size());
}

int64_t MemoryDataset::label(int64_t index) const {
  check_index(*this, index);
  return content_.labels[static_cast<size_t>(index)];
}

} // namespace ampkit::zoo::detail
