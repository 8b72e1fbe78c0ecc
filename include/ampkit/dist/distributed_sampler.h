#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ampkit/dist/context.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::dist {

/// Settings of DistributedSampler, the same on all ranks.
struct DistributedSamplerOptions {
  /// Another order in each epoch; otherwise 0, 1, 2, ...
  bool shuffle = true;
  /// Leave out a last batch that is not full.
  bool drop_last = false;
  uint64_t seed = 0;
};

/// Says which samples of a data set are this rank's, batch by batch:
///
///     dist::DistributedSampler sampler(dataset.size(), 256, context);
///     for (int epoch = 0; epoch < 10; ++epoch) {
///       while (const auto indices = sampler.next()) {
///         ...  // this rank's part of the next 256 samples
///       }
///     }
///
/// Each epoch has an order of its own, which no call has to announce. In an
/// epoch each sample is seen once, by one rank: none twice, and none is missing
/// unless drop_last says so. All ranks get equally many batches, parts of which
/// differ by 1 sample at most; in the last batch a part may be empty, and such
/// a rank must still join in what the others reduce.
///
/// `samples_per_step` counts those of all ranks together, so that order and
/// batches do not depend on the number of ranks, and a state can be loaded on
/// another one. Weigh losses by size() / step_size() where parts differ. Not
/// thread-safe; nothing here communicates.
///
/// Source: torch.utils.data.DistributedSampler, which repeats samples until the
/// parts are equal, has the same order in every epoch unless set_epoch() is
/// called, and can't be resumed within an epoch.
class AMPKIT_API DistributedSampler {
 public:
  /// Throws c10::ValueError if `samples` < 1, `samples_per_step` is less than
  /// the number of ranks, or no batch would be left.
  DistributedSampler(
      int64_t samples,
      int64_t samples_per_step,
      const Context& context,
      const DistributedSamplerOptions& options = {});

  /// For rank `rank` of `world_size`. Throws besides if `rank` is not in [0,
  /// world_size).
  DistributedSampler(
      int64_t samples,
      int64_t samples_per_step,
      int64_t rank,
      int64_t world_size,
      const DistributedSamplerOptions& options = {});

  /// This rank's indices of the next batch, maybe none; nothing at the end of
  /// an epoch, after which the next call begins the next epoch.
  std::optional<std::vector<int64_t>> next();

  /// Samples on all ranks of the batch that next() gave last.
  int64_t step_size() const { return step_size_; }

  int64_t batches_per_epoch() const;
  int64_t epoch() const { return epoch_; }

  /// Goes to batch `batch`, in [0, batches_per_epoch()], of epoch `epoch` >= 0.
  /// Throws c10::ValueError, changing nothing, if either is out of range.
  void start_epoch(int64_t epoch, int64_t batch = 0);

  /// Where the next batch lies, the same on every rank.
  io::StateDict state_dict() const;
  /// Goes on there. Throws c10::Error, changing nothing, if an entry is
  /// missing, or names another order or other batches: the number of samples,
  /// of those a step, seed, shuffle or drop_last differ.
  void load_state_dict(const io::StateDict& state);

 private:
  void shuffle();
  io::StateDict identity() const;

  int64_t samples_;
  int64_t per_step_;
  int64_t rank_;
  int64_t world_size_;
  DistributedSamplerOptions options_;
  int64_t epoch_ = 0;
  int64_t batch_ = 0;
  int64_t step_size_ = 0;
  std::vector<int64_t> order_; // of epoch_
};

} // namespace ampkit::dist
