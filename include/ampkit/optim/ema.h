#pragma once

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>
#include <ampkit/optim/averaged_weights.h>

namespace ampkit::optim {

/// Settings of an ExponentialMovingAverage.
struct ExponentialMovingAverageOptions {
  /// Part of the average that each update keeps; in [0, 1].
  double decay = 0.999;
  /// Average buffers (running statistics) too. false: evaluation uses the
  /// module's present ones.
  bool use_buffers = false;
};

/// Moving averages of a module's weights, as Python's
/// AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers):
/// the first update copies, each later one moves the averages by 1 - decay of
/// the way to the weights.
///
///     ExponentialMovingAverage ema(*model, {.decay = 0.999});
///     ...
///     ema.update();   // after each optimizer step
///     ...
///     {
///       auto averaged = ema.swap_in();
///       evaluate(*model);   // with the averages
///     }
///
/// Integer buffers are averaged and truncated as in Python.
class AMPKIT_API ExponentialMovingAverage : public AveragedWeights {
 public:
  /// Takes the tensors that `module` has now. Throws c10::ValueError if `decay`
  /// is out of range or there is no parameter.
  explicit ExponentialMovingAverage(
      const torch::nn::Module& module,
      const ExponentialMovingAverageOptions& options = {});

 protected:
  void move(
      std::vector<at::Tensor>& averages,
      const std::vector<at::Tensor>& sources) const override;
  at::Tensor next_integers(
      const at::Tensor& average, const at::Tensor& source) const override;

 private:
  double decay_;
};

} // namespace ampkit::optim
