#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/zoo/data/image_dataset.h>

namespace ampkit::zoo::detail {

/// A data set whose pixels lie in memory, image after image.
class MemoryDataset : public ImageDataset {
 public:
  struct Content {
    ImageShape shape;
    std::vector<std::string> class_names;
    std::unique_ptr<uint8_t[]> pixels; ///< labels.size() images
    std::vector<uint8_t> labels; ///< each < class_names.size()
  };

  explicit MemoryDataset(Content content) : content_(std::move(content)) {}

  int64_t size() const override;
  ImageShape shape() const override { return content_.shape; }
  int64_t num_classes() const override;
  std::vector<std::string> class_names() const override;
  void read(int64_t index, std::span<uint8_t> chw) const override;
  int64_t label(int64_t index) const override;

 private:
  Content content_;
};

/// Throws c10::ValueError unless `index` is in [0, dataset.size()).
void check_index(const ImageDataset& dataset, int64_t index);

/// Throws c10::ValueError unless one image of `dataset` has `bytes` bytes.
void check_buffer(const ImageDataset& dataset, size_t bytes);

} // namespace ampkit::zoo::detail
