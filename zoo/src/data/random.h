#pragma once

#include <cstdint>

namespace ampkit::zoo::detail {

/// Random numbers that are a function of what they are for: those of one image
/// in one epoch are the same whoever draws them, and when. SplitMix64, started
/// from a hash of the key.
///
/// Source: https://doi.org/10.1145/2714064.2660195
class KeyedRandom {
 public:
  /// `use` keeps apart what is drawn for different purposes.
  KeyedRandom(uint64_t use, uint64_t seed, uint64_t epoch, uint64_t index)
      : state_(
            mix(mix(mix(mix(use) + kStep + seed) + kStep + epoch) + kStep +
                index)) {}

  /// Uniform in [0, limit); 1 <= limit < 2^32. The bias is below limit / 2^32.
  uint64_t below(uint64_t limit) { return ((next() >> 32U) * limit) >> 32U; }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15U;

  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }

  uint64_t next() { return mix(state_ += kStep); }

  uint64_t state_;
};

} // namespace ampkit::zoo::detail
