#include <ampkit/optim/decay.h>

#include <unordered_set>

#include <torch/nn/module.h>

#include "amp/norm_layers.h"

namespace ampkit::optim {
namespace {

using Tensors = std::unordered_set<const void*>;

/// Parameters of the norm layers in `module`.
Tensors of_norm_layers(const torch::nn::Module& module) {
  Tensors found;
  for (const auto& part : module.modules()) {
    if (is_norm_layer(*part)) {
      for (const auto& parameter : part->parameters(/*recurse=*/false)) {
        found.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  return found;
}

} // namespace

DecayParts split_for_decay(
    const torch::nn::Module& module, const DecayOptions& options) {
  const Tensors norms = of_norm_layers(module);
  Tensors seen;
  DecayParts parts;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    const void* key = parameter.unsafeGetTensorImpl();
    if (!seen.insert(key).second) {
      continue; // tied
    }
    const bool decays = options.decay_norms_and_biases ||
                        (parameter.dim() > 1 && !norms.contains(key));
    auto& part = decays ? parts.decayed : parts.kept;
    part.params.push_back(parameter);
    part.names.push_back(item.key());
  }
  return parts;
}

} // namespace ampkit::optim
