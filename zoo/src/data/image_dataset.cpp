#include <ampkit/zoo/data/image_dataset.h>

#include <array>
#include <cmath>
#include <utility>

#include <c10/util/Exception.h>

#include "data/memory_dataset.h"

namespace ampkit::zoo {
namespace {

// Exact for up to 2^48 pixels.
struct Sums {
  uint64_t values = 0;
  uint64_t squares = 0;

  void add(std::span<const uint8_t> pixels) {
    for (const uint64_t value : pixels) {
      values += value;
      squares += value * value;
    }
  }
};

class FirstImages : public ImageDataset {
 public:
  FirstImages(std::shared_ptr<const ImageDataset> dataset, int64_t count)
      : dataset_(std::move(dataset)), count_(count) {}

  int64_t size() const override { return count_; }
  ImageShape shape() const override { return dataset_->shape(); }
  int64_t num_classes() const override { return dataset_->num_classes(); }
  std::vector<std::string> class_names() const override {
    return dataset_->class_names();
  }
  void read(int64_t index, std::span<uint8_t> chw) const override {
    detail::check_index(*this, index);
    dataset_->read(index, chw);
  }
  int64_t label(int64_t index) const override {
    detail::check_index(*this, index);
    return dataset_->label(index);
  }

 private:
  std::shared_ptr<const ImageDataset> dataset_;
  int64_t count_;
};

} // namespace

Normalization ImageDataset::normalization() const {
  const auto channels = static_cast<size_t>(shape().channels);
  const auto plane = static_cast<size_t>(shape().height * shape().width);
  std::vector<Sums> sums(channels);
  std::vector<uint8_t> pixels(channels * plane);
  for (int64_t index = 0; index < size(); ++index) {
    read(index, pixels);
    for (size_t channel = 0; channel < channels; ++channel) {
      sums[channel].add(std::span(pixels).subspan(channel * plane, plane));
    }
  }
  const double count = static_cast<double>(size()) * static_cast<double>(plane);
  Normalization result;
  for (const auto& sum : sums) {
    const double mean = static_cast<double>(sum.values) / count;
    const double square = static_cast<double>(sum.squares) / count;
    const double std = std::sqrt(std::max(0.0, square - mean * mean));
    result.mean.push_back(mean / 255);
    result.std.push_back(std > 0 ? std / 255 : 1);
  }
  return result;
}

std::shared_ptr<const ImageDataset> first_images(
    std::shared_ptr<const ImageDataset> dataset, int64_t count) {
  TORCH_CHECK_VALUE(dataset != nullptr, "first_images: dataset is null");
  TORCH_CHECK_VALUE(
      count >= 1 && count <= dataset->size(),
      "first_images: count must be in [1, ",
      dataset->size(),
      "], got ",
      count);
  return std::make_shared<FirstImages>(std::move(dataset), count);
}

} // namespace ampkit::zoo
