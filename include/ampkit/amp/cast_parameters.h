#pragma once

#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include <ampkit/amp/precision.h>
#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn
namespace torch::jit {
struct Module;
} // namespace torch::jit

namespace ampkit {

/// Settings of cast_parameters().
struct CastParametersOptions {
  /// Norm layers stay in, or become, fp32, whatever the precision says. false:
  /// they are cast as all others, and running statistics with the weights,
  /// since LibTorch's kernels want one dtype for both; fp16 ones overflow
  /// beyond 65504.
  bool keep_norm_layers_fp32 = true;
  /// Paths of more modules that stay in, or become, fp32, with all below them:
  /// "head", "blocks.*.router". '*' stands for any letters of a name, the name
  /// '**' for any number of names.
  std::vector<std::string> keep_fp32 = {};
};

/// A parameter or buffer that cast_parameters() changed.
struct DtypeChange {
  std::string name; ///< of named_parameters() or named_buffers()
  c10::ScalarType from = c10::ScalarType::Undefined;
  c10::ScalarType to = c10::ScalarType::Undefined;
};

/// Stores the floating-point parameters of `module` in `precision.parameters`
/// and its floating-point buffers in `precision.buffers`.
///
///     ampkit::cast_parameters(*model, precision);
///     ampkit::optim::AdamW optimizer(model->parameters(), {.lr = 3e-4});
///
/// Nothing else changes. Integer, boolean and complex members stay, where
/// Module::to(kHalf) makes a num_batches_tracked that sticks at 2048; so do
/// members of less than 16 bits. A parameter remains the same tensor with new
/// contents: ties stay ties, also those of two tensors over the same memory,
/// and requires_grad and optimizers made before stay valid. ampkit's optimizers
/// begin their fp32 masters from the cast values at the next step. Hooks on
/// gradient accumulators are lost; handles on the old memory (flat buffers,
/// detach()) no longer follow.
///
/// Norm layers are torch::nn::BatchNorm, InstanceNorm, LayerNorm and GroupNorm
/// and whatever has a type name that ends in one of these or in RMSNorm, with
/// or without 1d, 2d, 3d: only their own members, not those of modules below. A
/// tensor is kept if one of the modules that hold it is. A 16-bit input of such
/// an fp32 layer needs no cast on the CPU; on CUDA, LayerNorm and GroupNorm
/// take it inside an Autocast, which casts it.
///
/// Returns what changed, each tensor once, under the first of its names.
///
/// Throws, having changed nothing: c10::ValueError if `precision` stores
/// parameters or buffers in anything but fp16, bf16, fp32 or fp64, or if a
/// pattern of `keep_fp32` matches no module; c10::Error if a parameter that is
/// to change has a gradient, which would keep its dtype (clear it first). Not
/// for use inside an Autocast or between forward and backward. Waits for no
/// device.
AMPKIT_API std::vector<DtypeChange> cast_parameters(
    torch::nn::Module& module,
    const Precision& precision,
    const CastParametersOptions& options = {});

/// The same for a TorchScript module that is not frozen; norm layers are known
/// by their type names.
AMPKIT_API std::vector<DtypeChange> cast_parameters(
    torch::jit::Module& module,
    const Precision& precision,
    const CastParametersOptions& options = {});

} // namespace ampkit
