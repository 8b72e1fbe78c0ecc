#include <ampkit/optim/swa.h>

#include <ATen/ATen.h>

namespace ampkit::optim {

StochasticWeightAverage::StochasticWeightAverage(
    const torch::nn::Module& module,
    const StochasticWeightAverageOptions& options)
    : AveragedWeights("StochasticWeightAverage", module, options.use_buffers) {}

void StochasticWeightAverage::move(
    std::vector<at::Tensor>& averages,
    const std::vector<at::Tensor>& sources) const {
  if (averages.front().is_cpu()) {
    // Where Python has no foreach kernels it takes this formula.
    for (size_t i = 0; i < averages.size(); ++i) {
      averages[i].add_((sources[i] - averages[i]).div_(updates() + 1));
    }
    return;
  }
  // Python divides by an integer tensor, whose result is FP32.
  const double share = 1.0F / static_cast<float>(updates() + 1);
  at::_foreach_lerp_(averages, sources, share);
}

at::Tensor StochasticWeightAverage::next_integers(
    const at::Tensor& average, const at::Tensor& source) const {
  const auto present = average.to(at::kLong); // no bool, no wrap-around
  const auto moved =
      present + (source.to(at::kLong) - present).div(updates() + 1);
  return moved.to(at::kLong);
}

} // namespace ampkit::optim
