#include <ampkit/optim/ema.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace ampkit::optim {

ExponentialMovingAverage::ExponentialMovingAverage(
    const torch::nn::Module& module,
    const ExponentialMovingAverageOptions& options)
    : AveragedWeights("ExponentialMovingAverage", module, options.use_buffers),
      decay_(options.decay) {
  TORCH_CHECK_VALUE(
      options.decay >= 0 && options.decay <= 1,
      "ExponentialMovingAverage: decay must be in [0, 1], got ",
      options.decay);
}

void ExponentialMovingAverage::move(
    std::vector<at::Tensor>& averages,
    const std::vector<at::Tensor>& sources) const {
  at::_foreach_lerp_(averages, sources, 1 - decay_);
}

at::Tensor ExponentialMovingAverage::next_integers(
    const at::Tensor& average, const at::Tensor& source) const {
  return average * decay_ + source * (1 - decay_);
}

} // namespace ampkit::optim
