#include "amp/norm_layers.h"

#include <algorithm>
#include <array>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

namespace ampkit {

bool names_a_norm_layer(std::string_view type) {
  type = type.substr(type.find_last_of(":.") + 1); // npos + 1 is 0
  for (const std::string_view suffix : {"Impl", "1d", "2d", "3d"}) {
    if (type.ends_with(suffix)) {
      type.remove_suffix(suffix.size());
    }
  }
  constexpr std::array<std::string_view, 5> kNorms{
      "BatchNorm", "InstanceNorm", "LayerNorm", "GroupNorm", "RMSNorm"};
  return std::ranges::any_of(
      kNorms, [type](std::string_view norm) { return type.ends_with(norm); });
}

bool is_norm_layer(const torch::nn::Module& module) {
  using namespace torch::nn;
  return module.as<BatchNorm1d>() != nullptr ||
         module.as<BatchNorm2d>() != nullptr ||
         module.as<BatchNorm3d>() != nullptr ||
         module.as<InstanceNorm1d>() != nullptr ||
         module.as<InstanceNorm2d>() != nullptr ||
         module.as<InstanceNorm3d>() != nullptr ||
         module.as<LayerNorm>() != nullptr ||
         module.as<GroupNorm>() != nullptr || names_a_norm_layer(module.name());
}

} // namespace ampkit
