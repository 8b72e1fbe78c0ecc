#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <ampkit/dist/context.h>
#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::dist {

/// From now on the batch norms of `module` (BatchNorm1d, 2d and 3d,
/// TorchScript's too) normalise with the mean and variance over the batches of
/// all ranks, as one process with the whole batch would; parts may differ in
/// size. In evaluation mode nothing changes. Returns how many there are.
///
/// The module stays as it is, with its names, weights and running statistics:
/// LibTorch's op asks here whose statistics it was given. So call it after the
/// module was moved and cast, on every rank, and keep `context` as long as it
/// trains. All ranks must do the same passes in the same order; each norm then
/// sends two small messages in forward and one in backward.
///
/// Throws c10::ValueError, naming it, if a norm has neither running statistics
/// nor weights, by which it could be known.
///
/// Source: torch.nn.SyncBatchNorm.convert_sync_batchnorm.
AMPKIT_API int64_t
convert_sync_batchnorm(torch::nn::Module& module, const Context& context);

/// What such a norm does. `input`: [n, channels, ...], n may be 0 on some
/// ranks; weight, bias and running statistics: [channels], or undefined.
/// Running statistics are updated in place, `momentum` of the way, with the
/// unbiased variance. Throws c10::Error unless all ranks together have more
/// than one value a channel.
AMPKIT_API at::Tensor sync_batch_norm(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    double momentum,
    double eps,
    const Context& context);

} // namespace ampkit::dist
