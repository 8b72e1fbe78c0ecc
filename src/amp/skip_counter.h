#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "amp/flag.h"
#include "amp/lagged_copy.h"

namespace ampkit {

/// Counts what became of steps: on the host as long as that is known there,
/// else on the device.
class SkipCounter {
 public:
  struct Counts {
    int64_t steps = 0; // step() calls
    int64_t skipped = 0; // of these
    int64_t faults = 0; // of the skipped
    int64_t skips_in_a_row = 0; // iterations
    int64_t faults_in_a_row = 0;
  };

  /// One optimizer's step.
  void count_step(const Flag& skipped, const Flag& fault);

  /// What one update() ends.
  void count_iteration(const Flag& skipped, const Flag& fault);

  /// Waits for the device.
  Counts read() const;

  void load(const Counts& counts);

  struct Peek {
    /// Of this iteration, or of the one at whose peek() `sent` was last true.
    std::optional<Counts> counts;
    /// Whether a later peek() gives the counts as they are now.
    bool sent = false;
  };

  /// Without waiting: what a device counts is sent at one call and comes back
  /// at a later one.
  Peek peek();

 private:
  void add(int64_t first, const Flag& skipped, const Flag& fault, bool row);

  Counts counts_; // the skips and faults in it: while device_ is undefined
  at::Tensor device_; // int64 [4]: the last four of Counts
  LaggedCopy copy_;
};

} // namespace ampkit
