#include "train/parameters.h"

#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/decay.h>
#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
#include <ampkit/optim/muon.h>
#include <ampkit/optim/rmsprop.h>
#include <ampkit/optim/sgd.h>
#include <c10/util/StringUtil.h>

namespace ampkit::zoo {
namespace {

/// What the options of `Optimizer` have of the configuration's keys.
template <class Optimizer>
typename Optimizer::Options options_of(const OptimizerConfig& config) {
  typename Optimizer::Options o;
  o.lr = config.lr;
  o.weight_decay = config.weight_decay;
  if constexpr (requires { o.betas; }) {
    o.betas = {config.beta1, config.beta2};
  }
  if constexpr (requires { o.eps = config.eps; }) {
    o.eps = config.eps;
  }
  if constexpr (requires { o.amsgrad; }) {
    o.amsgrad = config.amsgrad;
  }
  if constexpr (requires { o.momentum; }) {
    o.momentum = config.momentum;
  }
  if constexpr (requires { o.dampening; }) {
    o.dampening = config.dampening;
  }
  if constexpr (requires { o.nesterov; }) {
    o.nesterov = config.nesterov;
  }
  if constexpr (requires { o.lr_decay; }) {
    o.lr_decay = config.lr_decay;
    o.initial_accumulator_value = config.initial_accumulator_value;
  }
  if constexpr (requires { o.alpha; }) {
    o.alpha = config.alpha;
    o.centered = config.centered;
  }
  if constexpr (requires { o.beta2_decay; }) {
    o.beta2_decay = config.beta2_decay;
    o.d = config.d;
  }
  if constexpr (requires { o.bias_correction; }) {
    o.bias_correction = config.bias_correction;
  }
  if constexpr (requires { o.ns_steps; }) {
    o.ns_steps = config.ns_steps;
    o.adjust_lr_fn = config.adjust_lr == "original"
                         ? optim::AdjustLr::original
                         : optim::AdjustLr::match_rms_adamw;
  }
  return o;
}

using Optimizers = std::vector<std::unique_ptr<optim::FusedOptimizer>>;

template <class Optimizer>
Optimizers make(
    const OptimizerConfig& config, const torch::nn::Module& module) {
  Optimizers result;
  result.push_back(std::make_unique<Optimizer>(optim::decay_groups(
      module,
      options_of<Optimizer>(config),
      {.decay_norms_and_biases = config.decay_all})));
  return result;
}

optim::NamedParameters matrices(
    const optim::NamedParameters& from, bool wanted) {
  optim::NamedParameters result;
  for (size_t i = 0; i < from.params.size(); ++i) {
    if ((from.params[i].dim() == 2) == wanted) {
      result.params.push_back(from.params[i]);
      result.names.push_back(from.names[i]);
    }
  }
  return result;
}

/// The matrices of `parts`, or the rest, in the groups of decay_groups().
template <class Options>
std::vector<optim::ParamGroup<Options>> groups_of(
    const optim::DecayParts& parts, Options options, bool of_matrices) {
  std::vector<optim::ParamGroup<Options>> groups;
  const auto add = [&](const optim::NamedParameters& from, const char* name) {
    auto part = matrices(from, of_matrices);
    if (!part.params.empty()) {
      groups.push_back(
          {std::move(part.params), options, name, std::move(part.names)});
    }
  };
  add(parts.decayed, "decayed");
  options.weight_decay = 0;
  add(parts.kept, "not decayed");
  return groups;
}

template <>
Optimizers make<optim::Muon>(
    const OptimizerConfig& config, const torch::nn::Module& module) {
  const auto parts = optim::split_for_decay(
      module, {.decay_norms_and_biases = config.decay_all});
  auto others = options_of<optim::AdamW>(config);
  others.lr = config.adamw_lr > 0 ? config.adamw_lr : config.lr;
  auto hidden = groups_of(parts, options_of<optim::Muon>(config), true);
  auto rest = groups_of(parts, others, false);
  if (hidden.empty()) {
    throw ConfigError(
        {__func__, __FILE__, __LINE__},
        "optimizer.name: muon needs weights of two dimensions, of which the "
        "network has none; take another");
  }
  Optimizers result;
  result.push_back(std::make_unique<optim::Muon>(std::move(hidden)));
  if (!rest.empty()) {
    result.push_back(std::make_unique<optim::AdamW>(std::move(rest)));
  }
  return result;
}

using Maker = decltype(&make<optim::AdamW>);

const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> all{
      {"adafactor", make<optim::Adafactor>},
      {"adagrad", make<optim::Adagrad>},
      {"adam", make<optim::Adam>},
      {"adamw", make<optim::AdamW>},
      {"lamb", make<optim::LAMB>},
      {"lion", make<optim::Lion>},
      {"muon", make<optim::Muon>},
      {"rmsprop", make<optim::RMSprop>},
      {"sgd", make<optim::SGD>}};
  return all;
}

} // namespace

std::vector<std::string> trainable_presets() {
  std::vector<std::string> result;
  for (const auto& name : Precision::names()) {
    if (!Precision::parse(name).split_master) {
      result.push_back(name);
    }
  }
  return result;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) {
    names.push_back(name);
  }
  return names;
}

std::vector<std::unique_ptr<optim::FusedOptimizer>> make_optimizers(
    const OptimizerConfig& config, const torch::nn::Module& module) {
  for (const auto& [name, maker] : makers()) {
    if (name == config.name) {
      return maker(config, module);
    }
  }
  TORCH_CHECK_VALUE(
      false,
      "optimizer.name must be one of ",
      c10::Join(", ", optimizer_names()),
      ", got ",
      config.name);
}

} // namespace ampkit::zoo
