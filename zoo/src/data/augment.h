#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ampkit/zoo/data/image_loader.h>

namespace ampkit::zoo::detail {

/// Turns pixels into the numbers of a batch: crop, mirror, cutout and
/// normalisation in one pass, without memory of its own. Thread-safe.
class Augmenter {
 public:
  /// Throws c10::ValueError, naming the field, if an option does not fit.
  Augmenter(
      const ImageDataset& dataset,
      const AugmentOptions& options,
      uint64_t seed);

  /// Writes shape.numel() numbers for image `index` to `output`.
  void run(
      std::span<const uint8_t> chw,
      int64_t epoch,
      int64_t index,
      float* output) const;

  const Normalization& normalization() const { return normalization_; }

 private:
  // What was drawn for one image.
  struct Draw {
    int64_t shift_y;
    int64_t shift_x;
    bool flip;
    int64_t cut_y;
    int64_t cut_x;
  };

  Draw draw(int64_t epoch, int64_t index) const;
  void convert_plane(
      const uint8_t* plane,
      const float* table,
      const Draw& draw,
      float* output) const;
  void cut_out(const Draw& draw, float* output) const;

  ImageShape shape_;
  AugmentOptions options_;
  uint64_t seed_;
  Normalization normalization_;
  // What each pixel value becomes, 256 numbers a channel. It costs no more than
  // computing it, and gives PyTorch's roundings to the last bit.
  std::vector<float> tables_;
};

} // namespace ampkit::zoo::detail
