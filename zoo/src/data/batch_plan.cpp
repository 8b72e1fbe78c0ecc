#include "data/batch_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <c10/util/Exception.h>

#include "data/random.h"

namespace ampkit::zoo::detail {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
constexpr uint64_t kOrder = 1;

void check_count(const char* field, int64_t value, int64_t lowest) {
  TORCH_CHECK_VALUE(
      value >= lowest && value <= kMaxCount,
      "ImageLoader: ",
      field,
      " must be in [",
      lowest,
      ", ",
      kMaxCount,
      "], got ",
      value);
}

} // namespace

void check_options(const LoaderOptions& options, int64_t images) {
  check_count("batch_size", options.batch_size, 1);
  check_count("threads", options.threads, 0);
  check_count("prefetch_batches", options.prefetch_batches, 1);
  check_count("world_size", options.world_size, 1);
  TORCH_CHECK_VALUE(
      options.rank >= 0 && options.rank < options.world_size,
      "ImageLoader: rank must be in [0, world_size = ",
      options.world_size,
      "), got ",
      options.rank);
  TORCH_CHECK_VALUE(
      options.images_per_step == 0 ||
          (options.images_per_step >= options.world_size &&
           options.images_per_step <= kMaxCount),
      "ImageLoader: images_per_step must be 0 or in [world_size = ",
      options.world_size,
      ", ",
      kMaxCount,
      "], got ",
      options.images_per_step);
  check_count("images of the data set", images, 1);
  TORCH_CHECK_VALUE(
      count_batches(options, images) > 0,
      "ImageLoader: ",
      images,
      " images are fewer than the ",
      images_per_step(options),
      " of one step (batch_size ",
      options.batch_size,
      ", world_size ",
      options.world_size,
      ") and drop_last is set; lower batch_size or unset drop_last");
}

int64_t images_per_step(const LoaderOptions& options) {
  return options.images_per_step > 0 ? options.images_per_step
                                     : options.batch_size * options.world_size;
}

int64_t count_batches(const LoaderOptions& options, int64_t images) {
  const int64_t step = images_per_step(options);
  return options.drop_last ? images / step : (images - 1) / step + 1;
}

int64_t images_of_batch(
    const LoaderOptions& options, int64_t images, int64_t batch) {
  const int64_t step = images_per_step(options);
  return std::min(step, images - batch * step);
}

Piece piece_of_batch(
    const LoaderOptions& options, int64_t images, int64_t batch) {
  const int64_t start = batch * images_per_step(options);
  const int64_t count = images_of_batch(options, images, batch);
  const int64_t begin = count * options.rank / options.world_size;
  const int64_t end = count * (options.rank + 1) / options.world_size;
  // A rank without an image would be missing in the all-reduce.
  return {start + begin, start + std::max(end, begin + 1), begin == end};
}

std::vector<int64_t> epoch_order(
    const LoaderOptions& options, int64_t images, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(images));
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) {
    KeyedRandom random(kOrder, options.seed, static_cast<uint64_t>(epoch), 0);
    for (size_t left = order.size(); left > 1; --left) {
      std::swap(order[left - 1], order[random.below(left)]);
    }
  }
  return order;
}

} // namespace ampkit::zoo::detail
