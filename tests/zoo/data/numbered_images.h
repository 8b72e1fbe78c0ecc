#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <torch/types.h>

#include <ampkit/zoo/data/image_dataset.h>
#include <ampkit/zoo/data/image_loader.h>

namespace ampkit::zoo {

/// Images [2, 6, 5] that can be told from one another, and from themselves
/// shifted or mirrored; the label is the number of the image.
class NumberedImages : public ImageDataset {
 public:
  explicit NumberedImages(int64_t size) : size_(size) {}

  /// The image whose file is "damaged"; -1: none.
  int64_t damaged = -1;
  /// How long reading one image takes.
  std::chrono::microseconds delay{0};
  mutable std::atomic<int64_t> reads = 0;

  int64_t size() const override { return size_; }
  ImageShape shape() const override { return {2, 6, 5}; }
  int64_t num_classes() const override { return size_; }
  std::vector<std::string> class_names() const override { return {}; }

  void read(int64_t index, std::span<uint8_t> chw) const override {
    ++reads;
    if (delay.count() > 0) {
      std::this_thread::sleep_for(delay);
    }
    if (index == damaged) {
      throw DataError(
          {__func__, __FILE__, __LINE__}, "image 17.jpg is damaged");
    }
    for (size_t i = 0; i < chw.size(); ++i) {
      chw[i] = static_cast<uint8_t>(1 + i * 3 + index % 50);
    }
  }

  int64_t label(int64_t index) const override { return index; }

 private:
  int64_t size_;
};

/// Input becomes pixel / 255, so that pixels can be read back.
inline const AugmentOptions kPlain{.mean = {0, 0}, .std = {1, 1}};

/// What is left of the epoch.
inline std::vector<Batch> rest_of_epoch(ImageLoader& loader) {
  std::vector<Batch> batches;
  while (auto batch = loader.next()) {
    batches.push_back(*batch);
  }
  return batches;
}

inline std::vector<Batch> whole_epoch(ImageLoader& loader, int64_t epoch) {
  loader.start_epoch(epoch);
  return rest_of_epoch(loader);
}

inline std::vector<int64_t> labels(const std::vector<Batch>& batches) {
  std::vector<int64_t> result;
  for (const auto& batch : batches) {
    const auto* begin = batch.target.const_data_ptr<int64_t>();
    result.insert(result.end(), begin, begin + batch.target.numel());
  }
  return result;
}

inline bool same(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  bool equal = a.size() == b.size();
  for (size_t i = 0; equal && i < a.size(); ++i) {
    equal = a[i].input.equal(b[i].input) && a[i].target.equal(b[i].target);
  }
  return equal;
}

} // namespace ampkit::zoo
