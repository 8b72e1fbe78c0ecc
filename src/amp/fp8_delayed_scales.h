#pragma once

#include <functional>
#include <mutex>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/fp8.h>

#include "amp/fp8_tensor.h"

namespace ampkit {

/// Amax histories, scales and inverse scales of all layers of a run, as
/// TransformerEngine's DelayedScaling keeps them: place 0 of a history is the
/// step that runs, the others go from the oldest to the latest.
///
/// scale() and record() may be called by several threads.
class Fp8DelayedScales {
 public:
  /// One layer's part: what is saved.
  struct Part {
    at::Tensor history; // fp32 [length, 3]
    at::Tensor scale; // fp32 [3]
    at::Tensor inverse; // fp32 [3]
  };

  Fp8DelayedScales(int64_t layers, const Fp8Options& options);

  /// The scale and its inverse, fp32 [], on `device`.
  std::pair<at::Tensor, at::Tensor> scale(
      int64_t layer, Fp8Role role, c10::Device device);
  /// Takes the larger of `amax` and what the step saw before.
  void record(int64_t layer, Fp8Role role, const at::Tensor& amax);
  void update(const std::function<void(at::Tensor&)>& reduce_amax);

  Part part(int64_t layer) const;
  void set_part(int64_t layer, const Part& part);

 private:
  void settle_on(c10::Device device);

  Fp8AmaxAlgorithm algorithm_;
  double margin_;
  mutable std::mutex mutex_;
  // On the device of the first product; a column each for a layer's roles.
  // Scales are replaced, never overwritten: graphs hold the old ones.
  bool settled_ = false;
  at::Tensor history_; // fp32 [length, 3 * layers]
  at::Tensor scale_; // fp32 [3 * layers]
  at::Tensor inverse_; // fp32 [3 * layers]
  at::Tensor fp8_max_; // fp32 [3 * layers]
};

} // namespace ampkit
