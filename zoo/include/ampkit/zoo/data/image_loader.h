#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/zoo/data/image_dataset.h>

namespace ampkit::zoo {

/// Images and their labels, on the CPU.
struct Batch {
  at::Tensor input; ///< float32 [n, channels, height, width], normalised
  at::Tensor target; ///< int64 [n]
  /// Images of this step, those of all ranks together.
  int64_t step_images = 0;
  /// False where a rank had to repeat an image of another one, so that it has
  /// something to compute: it must count for nothing.
  bool counts = true;

  int64_t counted_images() const { return counts ? target.size(0) : 0; }
};

/// What happens to an image on its way into a batch, in this order.
struct AugmentOptions {
  /// Pixels of black put around the image before a window of its own size is
  /// cut out at random; >= 0.
  int64_t crop_padding = 0;
  /// Mirror every other image, at random.
  bool horizontal_flip = false;
  /// Side, in pixels, of a square around a random place that becomes the mean
  /// colour; 0: none.
  int64_t cutout = 0;
  /// Mean and standard deviation a channel, of pixels scaled to [0, 1]:
  /// input = (pixel / 255 - mean) / std, in float32. Empty: the data set's own,
  /// ImageDataset::normalization(). Give the evaluation loader those of the
  /// training loader (ImageLoader::normalization()).
  std::vector<double> mean = {};
  std::vector<double> std = {};
};

/// In which batches, in which order, and by how many threads images come.
struct LoaderOptions {
  /// Images of one batch on one rank; >= 1.
  int64_t batch_size = 128;
  /// Another order in each epoch; otherwise that of the data set.
  bool shuffle = true;
  /// Leave out a last batch that is not full.
  bool drop_last = false;
  uint64_t seed = 0;
  /// Threads that read and augment; 0: the caller does it in next().
  int threads = 2;
  /// Batches made ahead, ready or being made; >= 1. Bounds the memory.
  int prefetch_batches = 4;
  /// This process and how many there are; rank in [0, world_size).
  int64_t rank = 0;
  int64_t world_size = 1;
  /// Images of one step on all ranks together, if they are not to depend on
  /// the number of ranks; >= world_size. batch_size is not used then. 0:
  /// batch_size * world_size.
  int64_t images_per_step = 0;
};

/// Gives a data set batch by batch, made ahead by threads of its own.
///
///     ImageLoader loader(open_idx(dir, Split::train),
///                        {.crop_padding = 2, .horizontal_flip = true},
///                        {.batch_size = 128, .seed = 1});
///     for (int64_t epoch = 0; epoch < 10; ++epoch) {
///       loader.start_epoch(epoch);
///       while (auto batch = loader.next()) { ... }
///     }
///
/// Batches depend on seed, epoch and the options, to the last bit, and not on
/// the number of threads, where an epoch was started, or what ran before.
///
/// With several ranks, each batch of images_per_step images is split among
/// them: every rank gets equally many batches, and together, in each step, they
/// see what one process with that larger batch would see. The counts of two
/// ranks differ by 1 at most. Only where the last batch has fewer images than
/// there are ranks do some ranks repeat one, and Batch::counts is false there.
///
/// One thread at a time may call it. It may be destroyed at any moment, and
/// waits only for images that are just being read.
class AMPKIT_API ImageLoader {
 public:
  /// Starts the threads. Throws c10::ValueError, naming the field, if an option
  /// is out of range or no batch would come out of the data set.
  ImageLoader(
      std::shared_ptr<const ImageDataset> dataset,
      const AugmentOptions& augment = {},
      const LoaderOptions& options = {});
  ~ImageLoader();
  ImageLoader(const ImageLoader&) = delete;
  ImageLoader& operator=(const ImageLoader&) = delete;

  /// Begins epoch `epoch` (>= 0) at its batch `first_batch`, in
  /// [0, batches_per_epoch()]; drops what was made ahead. Throws
  /// c10::ValueError, changing nothing, if either is out of range.
  void start_epoch(int64_t epoch, int64_t first_batch = 0);

  /// The next batch, or nothing at the end of the epoch. Waits until it is
  /// made.
  ///
  /// Rethrows what a thread threw while making it, such as DataError, and does
  /// so again at each call until another epoch or batch is started. Throws
  /// c10::Error before the first start_epoch().
  std::optional<Batch> next();

  int64_t batches_per_epoch() const;

  /// What the batches are normalised with.
  const Normalization& normalization() const;

  /// Where in the data the next batch lies, the same on every rank.
  io::StateDict state_dict() const;

  /// Goes on where a loader stood when it gave `state`. Throws c10::Error,
  /// changing nothing, if an entry is missing, and ampkit::CheckpointError if
  /// its batches were not those of this one: another seed, order, number of
  /// images or of images a step. The number of ranks may be another.
  void load_state_dict(const io::StateDict& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit::zoo
