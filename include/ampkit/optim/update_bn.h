#pragma once

#include <functional>

#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::optim {

/// torch.optim.swa_utils.update_bn: the running statistics of all
/// torch::nn::BatchNorm1d, 2d and 3d in `module` become the mean over the
/// batches that `pass` runs through it, for weights that were never trained
/// with (averages).
///
///     update_bn(*model, [&] {
///       for (auto& batch : *loader) {
///         model->forward(batch.data);
///       }
///     });
///
/// `pass` runs without gradients, everything in training mode; then momentum
/// and mode of each module are as before, after an exception too, and the
/// statistics are those of the batches so far. Without batch norms `pass` does
/// not run. Waits for the device in each batch norm.
///
/// Throws c10::Error, having changed nothing, if a submodule of another type
/// has a buffer "running_mean" (instance norms may, and are left alone): its
/// statistics can't be reset. Throws c10::Error after `pass` if no batch came
/// to any batch norm.
AMPKIT_API void update_bn(
    torch::nn::Module& module, const std::function<void()>& pass);

} // namespace ampkit::optim
