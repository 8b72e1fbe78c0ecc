#pragma once

#include <ampkit/dist/distributed_data_parallel.h>

#include "dist/small_models.h"

namespace ampkit::dist {

inline constexpr int64_t kPerRank = 6;
// FP32: the same sums in another order.
inline constexpr double kClose = 1e-6;

inline at::Tensor data(int64_t rows, int64_t columns, double step) {
  return at::cos(at::arange(rows * columns, at::kFloat) * step)
      .view({rows, columns});
}

/// A batch for all ranks; each takes its rows of it.
struct Batch {
  explicit Batch(int ranks, int64_t step = 0)
      : input(
            data(kPerRank * ranks, 8, 0.13 + 0.01 * static_cast<double>(step))),
        target(data(kPerRank * ranks, 4, 0.29)) {}

  Batch of(int rank) const {
    auto part = *this;
    part.input = input.narrow(0, rank * kPerRank, kPerRank);
    part.target = target.narrow(0, rank * kPerRank, kPerRank);
    return part;
  }

  at::Tensor input;
  at::Tensor target;
};

/// Small enough for several buckets.
inline DistributedDataParallelOptions many_buckets(
    DistributedDataParallelOptions options = {}) {
  options.bucket_bytes = 400;
  options.first_bucket_bytes = 256;
  return options;
}

inline void check_close(const char* what, double found, double limit = kClose) {
  TORCH_CHECK(found <= limit, what, " differ by ", found);
}

} // namespace ampkit::dist
