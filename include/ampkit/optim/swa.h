#pragma once

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>
#include <ampkit/optim/averaged_weights.h>

namespace ampkit::optim {

/// Settings of a StochasticWeightAverage.
struct StochasticWeightAverageOptions {
  /// Average buffers (running statistics) too. false: recompute those of batch
  /// norms with update_bn().
  bool use_buffers = false;
};

/// Equal averages of a module's weights (Izmailov et al., 2018), as Python's
/// torch.optim.swa_utils.AveragedModel(model, use_buffers): after n updates the
/// mean of n states.
///
///     StochasticWeightAverage swa(*model);
///     SWALR schedule(optimizer, {.swa_lr = {0.05}});
///     ...
///     swa.update();   // once an epoch, near the end of training
///     ...
///     {
///       auto averaged = swa.swap_in();
///       update_bn(*model, [&] {
///         for (auto& batch : *loader) {
///           model->forward(batch.data);
///         }
///       });
///       evaluate(*model);   // and save it, if the averages are the result
///     }
///
/// As in Python, integer buffers hold their averages rounded towards 0, and on
/// a GPU the share of each update is rounded to FP32.
class AMPKIT_API StochasticWeightAverage : public AveragedWeights {
 public:
  /// Takes the tensors that `module` has now. Throws c10::ValueError if there
  /// is no parameter.
  explicit StochasticWeightAverage(
      const torch::nn::Module& module,
      const StochasticWeightAverageOptions& options = {});

 protected:
  void move(
      std::vector<at::Tensor>& averages,
      const std::vector<at::Tensor>& sources) const override;
  at::Tensor next_integers(
      const at::Tensor& average, const at::Tensor& source) const override;
};

} // namespace ampkit::optim
