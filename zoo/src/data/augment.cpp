#include "data/augment.h"

#include <algorithm>
#include <cmath>

#include <c10/util/Exception.h>

#include "data/random.h"

namespace ampkit::zoo::detail {
namespace {

constexpr int64_t kMaxPixels = 65535;
constexpr size_t kValues = 256; // of a pixel
constexpr uint64_t kAugment = 2;

void check_pixels(const char* field, int64_t value) {
  TORCH_CHECK_VALUE(
      value >= 0 && value <= kMaxPixels,
      "ImageLoader: ",
      field,
      " must be in [0, ",
      kMaxPixels,
      "] pixels, got ",
      value);
}

void check_channels(
    const char* field, const std::vector<double>& values, int64_t channels) {
  TORCH_CHECK_VALUE(
      static_cast<int64_t>(values.size()) == channels,
      "ImageLoader: ",
      field,
      " needs one value for each of ",
      channels,
      " channels, got ",
      values.size(),
      "; leave both mean and std empty for those of the data set");
  for (const double value : values) {
    TORCH_CHECK_VALUE(
        std::isfinite(value),
        "ImageLoader: ",
        field,
        " must be finite, got ",
        value);
  }
}

Normalization resolve(
    const AugmentOptions& options, const ImageDataset& dataset) {
  if (options.mean.empty() && options.std.empty()) {
    return dataset.normalization();
  }
  const Normalization result{options.mean, options.std};
  check_channels("mean", result.mean, dataset.shape().channels);
  check_channels("std", result.std, dataset.shape().channels);
  for (const double value : result.std) {
    TORCH_CHECK_VALUE(value > 0, "ImageLoader: std must be > 0, got ", value);
  }
  return result;
}

std::vector<float> make_tables(const Normalization& normalization) {
  std::vector<float> tables;
  tables.reserve(kValues * normalization.mean.size());
  for (size_t channel = 0; channel < normalization.mean.size(); ++channel) {
    const auto mean = static_cast<float>(normalization.mean[channel]);
    const auto std = static_cast<float>(normalization.std[channel]);
    for (size_t value = 0; value < kValues; ++value) {
      tables.push_back((static_cast<float>(value) / 255.0F - mean) / std);
    }
  }
  return tables;
}

} // namespace

Augmenter::Augmenter(
    const ImageDataset& dataset, const AugmentOptions& options, uint64_t seed)
    : shape_(dataset.shape()), options_(options), seed_(seed) {
  check_pixels("crop_padding", options.crop_padding);
  check_pixels("cutout", options.cutout);
  normalization_ = resolve(options, dataset);
  tables_ = make_tables(normalization_);
}

Augmenter::Draw Augmenter::draw(int64_t epoch, int64_t index) const {
  KeyedRandom random(
      kAugment,
      seed_,
      static_cast<uint64_t>(epoch),
      static_cast<uint64_t>(index));
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random.below(static_cast<uint64_t>(limit)));
  };
  // All are drawn each time, so that switching one off leaves the others.
  Draw draw{};
  draw.shift_y = below(2 * options_.crop_padding + 1) - options_.crop_padding;
  draw.shift_x = below(2 * options_.crop_padding + 1) - options_.crop_padding;
  draw.flip = below(2) == 1 && options_.horizontal_flip;
  draw.cut_y = below(shape_.height);
  draw.cut_x = below(shape_.width);
  return draw;
}

void Augmenter::run(
    std::span<const uint8_t> chw,
    int64_t epoch,
    int64_t index,
    float* output) const {
  const Draw drawn = draw(epoch, index);
  const int64_t plane = shape_.height * shape_.width;
  for (int64_t channel = 0; channel < shape_.channels; ++channel) {
    const float* table = tables_.data() + channel * kValues;
    float* target = output + channel * plane;
    convert_plane(chw.data() + channel * plane, table, drawn, target);
    if (options_.cutout > 0) {
      cut_out(drawn, target);
    }
  }
}

void Augmenter::convert_plane(
    const uint8_t* plane,
    const float* table,
    const Draw& draw,
    float* output) const {
  const int64_t width = shape_.width;
  const float black = table[0];
  // Columns of the window that lie in the image, not in the padding.
  const int64_t begin = std::clamp<int64_t>(-draw.shift_x, 0, width);
  const int64_t end = std::clamp<int64_t>(width - draw.shift_x, begin, width);
  for (int64_t y = 0; y < shape_.height; ++y, output += width) {
    const int64_t source_y = y + draw.shift_y;
    if (source_y < 0 || source_y >= shape_.height) {
      std::fill_n(output, width, black);
      continue;
    }
    const uint8_t* row = plane + source_y * width;
    std::fill_n(output, begin, black);
    for (int64_t x = begin; x < end; ++x) {
      output[x] = table[row[x + draw.shift_x]];
    }
    std::fill_n(output + end, width - end, black);
    if (draw.flip) {
      std::reverse(output, output + width);
    }
  }
}

void Augmenter::cut_out(const Draw& draw, float* output) const {
  const int64_t top = draw.cut_y - options_.cutout / 2;
  const int64_t left = draw.cut_x - options_.cutout / 2;
  const int64_t bottom = std::min(top + options_.cutout, shape_.height);
  const int64_t right = std::min(left + options_.cutout, shape_.width);
  const int64_t begin = std::max<int64_t>(left, 0);
  for (int64_t y = std::max<int64_t>(top, 0); y < bottom; ++y) {
    // Zero is the mean, once normalised.
    std::fill(
        output + y * shape_.width + begin,
        output + y * shape_.width + std::max(begin, right),
        0.0F);
  }
}

} // namespace ampkit::zoo::detail
