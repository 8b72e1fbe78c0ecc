#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ampkit::dist {

/// How far a rank has come: what is said of it when it is lost. Thread-safe.
class RankProgress {
 public:
  /// Of the training; until it is set, none is named.
  void at_step(int64_t step);
  /// The next step, unless at_step() was ever called: for those who don't.
  void count_step();

  /// A collective begins. Gives it a number, from 1.
  int64_t begin(const std::string& what);

  int64_t collectives() const;

  /// "at step 12, in or after collective 345, allreduce of float32 [4]"
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  int64_t step_ = -1;
  bool step_is_given_ = false;
  int64_t collectives_ = 0;
  std::string last_;
};

/// "allreduce of float32 [4, 2], int64 []"; after a few tensors, their number.
std::string describe_collective(
    const char* name,
    const std::vector<at::Tensor>& tensors,
    const std::string& details = "");

} // namespace ampkit::dist
