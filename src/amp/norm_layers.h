#pragma once

#include <string_view>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit {

/// Whether `type` is the name of a batch, instance, layer, group or RMS norm:
/// "torch::nn::BatchNorm2dImpl",
/// "__torch__.torch.nn.modules.batchnorm.___torch_mangle_1.BatchNorm2d".
bool names_a_norm_layer(std::string_view type);

/// Also of classes that derive from LibTorch's, whatever their names are.
bool is_norm_layer(const torch::nn::Module& module);

} // namespace ampkit
