#include "train/parameters.h"

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/sgd.h>

namespace ampkit::zoo {
namespace {

template <class Options>
std::vector<optim::ParamGroup<Options>> groups(
    const OptimizerConfig& config,
    const torch::nn::Module& module,
    Options options) {
  optim::ParamGroup<Options> decayed{.options = options, .name = "decayed"};
  options.weight_decay = 0;
  optim::ParamGroup<Options> kept{.options = options, .name = "not decayed"};
  for (const auto& item : module.named_parameters()) {
    auto& group = config.decay_all || item.value().dim() > 1 ? decayed : kept;
    group.params.push_back(item.value());
    group.names.push_back(item.key());
  }
  std::vector<optim::ParamGroup<Options>> result;
  for (auto& group : {decayed, kept}) {
    if (!group.params.empty()) {
      result.push_back(group);
    }
  }
  return result;
}

} // namespace

std::vector<std::string> trainable_presets() {
  std::vector<std::string> result;
  for (const auto& name : Precision::names()) {
    const auto p = Precision::parse(name);
    const bool computes = p.compute == at::kFloat || p.compute == at::kHalf ||
                          p.compute == at::kBFloat16;
    const bool updates_fp32 =
        p.parameters == at::kFloat || p.master == at::kFloat;
    if (computes && updates_fp32 && !p.split_master) {
      result.push_back(name);
    }
  }
  return result;
}

std::unique_ptr<optim::FusedOptimizer> make_optimizer(
    const OptimizerConfig& config, const torch::nn::Module& module) {
  if (config.name == "sgd") {
    return std::make_unique<optim::SGD>(groups(
        config,
        module,
        optim::SGDOptions{
            .lr = config.lr,
            .momentum = config.momentum,
            .weight_decay = config.weight_decay,
            .nesterov = config.nesterov}));
  }
  return std::make_unique<optim::AdamW>(groups(
      config,
      module,
      optim::AdamWOptions{
          .lr = config.lr,
          .betas = {config.beta1, config.beta2},
          .eps = config.eps,
          .weight_decay = config.weight_decay}));
}

} // namespace ampkit::zoo
