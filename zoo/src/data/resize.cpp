#include "data/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ampkit::zoo::detail {
namespace {

// Weights are whole numbers of 2^-22, so that 255 of the largest fit 31 bits.
constexpr int kBits = 22;
constexpr int32_t kHalf = 1 << (kBits - 1);
constexpr int64_t kColors = 3;

// Part of one axis of the picture, in pixels. Single precision, as Pillow's.
struct Interval {
  float begin;
  float end;
};

// How one output pixel is made of input pixels along one axis.
struct Taps {
  int64_t first;
  std::vector<int32_t> weights;
};

// Halves go up.
int64_t nearest(double value) {
  return static_cast<int64_t>(std::floor(value + 0.5));
}

uint8_t round_to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255));
}

// A triangle around the output pixel's centre, as wide as one input pixel or
// one output pixel, the larger, to each side.
Taps make_taps(double center, double radius, int64_t input_size) {
  const auto first = std::max<int64_t>(nearest(center - radius), 0);
  const auto last = std::min(nearest(center + radius), input_size);
  std::vector<double> weights;
  double total = 0;
  for (int64_t i = first; i < last; ++i) {
    const double distance =
        std::abs((static_cast<double>(i) - center + 0.5) * (1.0 / radius));
    weights.push_back(std::max(0.0, 1.0 - distance));
    total += weights.back();
  }
  Taps taps{first, {}};
  for (const double weight : weights) {
    taps.weights.push_back(
        static_cast<int32_t>(nearest(weight / total * (1 << kBits))));
  }
  return taps;
}

std::vector<Taps> make_axis(
    int64_t input_size, Interval part, int64_t output_size) {
  const double scale = static_cast<double>(part.end - part.begin) /
                       static_cast<double>(output_size);
  std::vector<Taps> axis;
  for (int64_t i = 0; i < output_size; ++i) {
    const double center = part.begin + (static_cast<double>(i) + 0.5) * scale;
    axis.push_back(make_taps(center, std::max(scale, 1.0), input_size));
  }
  return axis;
}

struct Box {
  Interval x;
  Interval y;
};

// The largest part of the picture, around its middle, with the proportions of
// the output.
Box middle_part(const Picture& picture, int64_t height, int64_t width) {
  const auto picture_width = static_cast<double>(picture.width);
  const auto picture_height = static_cast<double>(picture.height);
  const double wanted =
      static_cast<double>(width) / static_cast<double>(height);
  const double ratio = picture_width / picture_height;
  double box_width = picture_width;
  double box_height = picture_height;
  if (ratio > wanted) {
    box_width = wanted * picture_height;
  } else if (ratio < wanted) {
    box_height = picture_width / wanted;
  }
  const double left = (picture_width - box_width) * 0.5;
  const double top = (picture_height - box_height) * 0.5;
  return {
      {static_cast<float>(left), static_cast<float>(left + box_width)},
      {static_cast<float>(top), static_cast<float>(top + box_height)}};
}

// One row of the picture, scaled to the output's width.
void scale_row(
    const uint8_t* row, const std::vector<Taps>& axis, uint8_t* output) {
  for (const Taps& taps : axis) {
    int32_t red = kHalf;
    int32_t green = kHalf;
    int32_t blue = kHalf;
    const uint8_t* pixel = row + taps.first * kColors;
    for (const int32_t weight : taps.weights) {
      red += pixel[0] * weight;
      green += pixel[1] * weight;
      blue += pixel[2] * weight;
      pixel += kColors;
    }
    *output++ = round_to_byte(red);
    *output++ = round_to_byte(green);
    *output++ = round_to_byte(blue);
  }
}

} // namespace

void fit(
    const Picture& picture,
    int64_t height,
    int64_t width,
    std::span<uint8_t> chw) {
  const Box box = middle_part(picture, height, width);
  const auto columns = make_axis(picture.width, box.x, width);
  const auto rows = make_axis(picture.height, box.y, height);
  const int64_t first = rows.front().first;
  const int64_t last =
      rows.back().first + static_cast<int64_t>(rows.back().weights.size());
  const int64_t stride = width * kColors;
  std::vector<uint8_t> scaled(static_cast<size_t>((last - first) * stride));
  for (int64_t y = first; y < last; ++y) {
    scale_row(
        picture.rgb.get() + y * picture.width * kColors,
        columns,
        scaled.data() + (y - first) * stride);
  }
  std::vector<int32_t> sums(static_cast<size_t>(stride));
  for (int64_t y = 0; y < height; ++y) {
    const Taps& taps = rows[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), kHalf);
    const uint8_t* row = scaled.data() + (taps.first - first) * stride;
    for (const int32_t weight : taps.weights) {
      for (int64_t i = 0; i < stride; ++i) {
        sums[static_cast<size_t>(i)] += row[i] * weight;
      }
      row += stride;
    }
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t color = 0; color < kColors; ++color) {
        chw[static_cast<size_t>((color * height + y) * width + x)] =
            round_to_byte(sums[static_cast<size_t>(x * kColors + color)]);
      }
    }
  }
}

} // namespace ampkit::zoo::detail
