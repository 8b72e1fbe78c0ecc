#include "train/parameters.h"

#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/decay.h>
#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
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
  if constexpr (requires { o.nesterov; }) {
    o.nesterov = config.nesterov;
  }
  if constexpr (requires { o.lr_decay; }) {
    o.lr_decay = config.lr_decay;
  }
  if constexpr (requires { o.alpha; }) {
    o.alpha = config.alpha;
    o.centered = config.centered;
  }
  if constexpr (requires { o.beta2_decay; }) {
    o.beta2_decay = config.beta2_decay;
    o.d = config.d;
  }
  return o;
}

template <class Optimizer>
std::unique_ptr<optim::FusedOptimizer> make(
    const OptimizerConfig& config, const torch::nn::Module& module) {
  return std::make_unique<Optimizer>(optim::decay_groups(
      module,
      options_of<Optimizer>(config),
      {.decay_norms_and_biases = config.decay_all}));
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
      {"rmsprop", make<optim::RMSprop>},
      {"sgd", make<optim::SGD>}};
  return all;
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

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) {
    names.push_back(name);
  }
  return names;
}

std::unique_ptr<optim::FusedOptimizer> make_optimizer(
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
