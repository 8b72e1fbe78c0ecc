#include <cmath>
#include <set>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "zoo/data/numbered_images.h"
#include "zoo/data/sample_files.h"

namespace ampkit::zoo {
namespace {

constexpr int64_t kImages = 500;

/// Every image once, in the order of the data.
at::Tensor augmented(const AugmentOptions& options, int64_t epoch = 0) {
  ImageLoader loader(
      std::make_shared<NumberedImages>(kImages),
      options,
      {.batch_size = kImages, .shuffle = false});
  return whole_epoch(loader, epoch).front().input;
}

AugmentOptions plain_and(AugmentOptions options) {
  options.mean = kPlain.mean;
  options.std = kPlain.std;
  return options;
}

TEST(AugmentTest, NormalizationIsThatOfPyTorchToTheLastBit) {
  const auto pixels = (augmented(kPlain) * 255).round();
  const auto found = augmented({.mean = {0.3, 0.7}, .std = {0.1, 0.9}});
  const auto expected = at::stack(
      {pixels.select(1, 0).div(255).sub(0.3).div(0.1),
       pixels.select(1, 1).div(255).sub(0.7).div(0.9)},
      1);
  EXPECT_TRUE(found.equal(expected));
}

TEST(AugmentTest, EmptyMeanMakesTheDataStandard) {
  const auto input = augmented({}).to(at::kDouble);
  for (int64_t channel = 0; channel < 2; ++channel) {
    const auto plane = input.select(1, channel);
    EXPECT_NEAR(plane.mean().item<double>(), 0, 1e-6);
    EXPECT_NEAR(plane.std(false).item<double>(), 1, 1e-6);
  }
}

// Which window of the padded image, mirrored or not, `found` is.
std::tuple<int64_t, int64_t, bool> window_of(
    const at::Tensor& found, const at::Tensor& original, int64_t padding) {
  const auto padded =
      at::constant_pad_nd(original, {padding, padding, padding, padding}, 0);
  for (int64_t y = 0; y <= 2 * padding; ++y) {
    for (int64_t x = 0; x <= 2 * padding; ++x) {
      const auto window = padded.narrow(1, y, 6).narrow(2, x, 5);
      for (const bool flip : {false, true}) {
        if (found.equal(flip ? window.flip({2}) : window)) {
          return {y, x, flip};
        }
      }
    }
  }
  ADD_FAILURE() << "no window of the image: " << found;
  return {};
}

TEST(AugmentTest, CropAndFlipGiveEveryWindowEquallyOften) {
  const auto original = augmented(kPlain);
  const auto found =
      augmented(plain_and({.crop_padding = 1, .horizontal_flip = true}));
  std::map<std::tuple<int64_t, int64_t, bool>, int> counts;
  for (int64_t i = 0; i < kImages; ++i) {
    ++counts[window_of(found[i], original[i], 1)];
  }
  EXPECT_EQ(counts.size(), 18);
  for (const auto& [window, count] : counts) {
    EXPECT_NEAR(count, kImages / 18.0, 5 * std::sqrt(kImages / 18.0));
  }
}

TEST(AugmentTest, PaddingLargerThanTheImageIsFine) {
  const auto found = augmented(plain_and({.crop_padding = 9}));
  const auto original = augmented(kPlain);
  int64_t empty = 0;
  for (int64_t i = 0; i < kImages; ++i) {
    window_of(found[i], original[i], 9);
    empty += found[i].any().item<bool>() ? 0 : 1;
  }
  EXPECT_GT(empty, 0);
  EXPECT_LT(empty, kImages);
}

TEST(AugmentTest, EpochsAreAugmentedDifferently) {
  const auto options = plain_and({.crop_padding = 2, .horizontal_flip = true});
  EXPECT_TRUE(augmented(options, 3).equal(augmented(options, 3)));
  EXPECT_FALSE(augmented(options, 3).equal(augmented(options, 4)));
}

TEST(AugmentTest, OneAugmentationDoesNotChangeAnother) {
  const auto crop = augmented(plain_and({.crop_padding = 2}));
  const auto both =
      augmented(plain_and({.crop_padding = 2, .horizontal_flip = true}));
  for (int64_t i = 0; i < kImages; ++i) {
    EXPECT_TRUE(both[i].equal(crop[i]) || both[i].flip({2}).equal(crop[i]));
  }
}

TEST(AugmentTest, CutoutIsASquareOfTheMean) {
  const AugmentOptions options{.cutout = 3, .mean = {0.5, 0.5}, .std = {1, 1}};
  const auto found = augmented(options);
  const auto original = augmented({.mean = {0.5, 0.5}, .std = {1, 1}});
  std::set<int64_t> sizes;
  for (int64_t i = 0; i < kImages; ++i) {
    const auto cut = found[i].eq(0);
    EXPECT_TRUE(cut[0].equal(cut[1]));
    EXPECT_TRUE(found[i].equal(original[i].masked_fill(cut, 0)));
    const auto rows = cut[0].any(1).sum().item<int64_t>();
    const auto columns = cut[0].any(0).sum().item<int64_t>();
    EXPECT_EQ(cut[0].sum().item<int64_t>(), rows * columns);
    sizes.insert(rows * columns);
  }
  // 3 x 3, or what of it lies in the image.
  EXPECT_EQ(sizes, (std::set<int64_t>{4, 6, 9}));
}

} // namespace
} // namespace ampkit::zoo
