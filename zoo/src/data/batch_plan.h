#pragma once

#include <cstdint>
#include <vector>

#include <ampkit/zoo/data/image_loader.h>

namespace ampkit::zoo::detail {

/// A piece of an epoch's order, from `begin` to before `end`.
struct Piece {
  int64_t begin;
  int64_t end;

  /// Whether another rank has the images of this piece.
  bool repeated = false;

  int64_t size() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};

/// Throws c10::ValueError, naming the field, if an option is out of range or no
/// batch can be made of so many images.
void check_options(const LoaderOptions& options, int64_t images);

/// Images in one step of all ranks together.
int64_t images_per_step(const LoaderOptions& options);

/// Batches of one epoch, the same on every rank.
int64_t count_batches(const LoaderOptions& options, int64_t images);

/// Images of batch `batch` on all ranks.
int64_t images_of_batch(
    const LoaderOptions& options, int64_t images, int64_t batch);

/// What of the order is batch `batch` of this rank.
Piece piece_of_batch(
    const LoaderOptions& options, int64_t images, int64_t batch);

/// Indices of all images in the order of `epoch`.
std::vector<int64_t> epoch_order(
    const LoaderOptions& options, int64_t images, int64_t epoch);

} // namespace ampkit::zoo::detail
