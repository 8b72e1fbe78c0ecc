#include <functional>
#include <map>
#include <memory>

#include <torch/nn/modules.h>

#include <ampkit/amp/grad_scaler.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/torch_state.h>
#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/muon.h>
#include <ampkit/optim/rmsprop.h>
#include <ampkit/optim/sgd.h>
#include <ampkit/optim/torch_state.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

namespace nn = torch::nn;

using Groups = std::vector<optim::NamedParameters>;

// The settings come from the file.
template <class Optimizer>
std::unique_ptr<optim::FusedOptimizer> make(
    const Groups& groups, optim::Kernel kernel) {
  typename Optimizer::Options options;
  options.kernel = kernel;
  std::vector<optim::ParamGroup<typename Optimizer::Options>> made;
  for (const auto& group : groups) {
    made.push_back(
        {.params = group.params, .options = options, .names = group.names});
  }
  return std::make_unique<Optimizer>(std::move(made));
}

// The parameters that `run` lists by name for each group; else one group of
// all.
Groups groups_of(const nn::Module& model, const io::TorchDict& run) {
  if (run.find("groups") == nullptr) {
    return {optim::named(model)};
  }
  const auto parameters = model.named_parameters();
  Groups groups;
  for (const auto& names : run.at("groups").items()) {
    auto& group = groups.emplace_back();
    for (const auto& name : names.items()) {
      group.names.push_back(name.text());
      group.params.push_back(parameters[name.text()]);
    }
  }
  return groups;
}

std::unique_ptr<optim::FusedOptimizer> make_optimizer(
    const std::string& kind, const Groups& model) {
  using optim::Kernel;
  static const std::map<
      std::string,
      std::function<std::unique_ptr<optim::FusedOptimizer>(const Groups&)>>
      makers{
          // The stock kernel is Python's own, operation by operation.
          {"Adam", [](auto& m) { return make<optim::Adam>(m, Kernel::stock); }},
          {"AdamW",
           [](auto& m) { return make<optim::AdamW>(m, Kernel::stock); }},
          {"Adagrad",
           [](auto& m) { return make<optim::Adagrad>(m, Kernel::stock); }},
          {"SGD", [](auto& m) { return make<optim::SGD>(m, Kernel::stock); }},
          {"Adafactor",
           [](auto& m) {
             return make<optim::Adafactor>(m, Kernel::automatic);
           }},
          {"Muon",
           [](auto& m) { return make<optim::Muon>(m, Kernel::automatic); }},
          {"RMSprop",
           [](auto& m) { return make<optim::RMSprop>(m, Kernel::stock); }},
      };
  const auto place = makers.find(kind);
  TORCH_CHECK(place != makers.end(), "torch_train: unknown optimizer ", kind);
  return place->second(model);
}

// torch_train KIND IN OUT: goes on with a run of Python from its model,
// optimizer and scaler, over the batches x[i] and y[i], and saves it again.
void train_torch_optim_state(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 3, "usage: torch_train KIND IN OUT");
  const io::TorchValue file = io::load_torch_state(args[1]);
  const io::TorchDict& run = file.dict();
  const io::StateDict weights = io::to_state_dict(run.at("model"));
  const bool bias = weights.contains("0.bias");
  nn::Sequential model(
      nn::Linear(nn::LinearOptions(6, 8).bias(bias)),
      nn::Tanh(),
      nn::Linear(nn::LinearOptions(8, 3).bias(bias)));
  const auto x = run.at("x").tensor();
  const auto y = run.at("y").tensor();
  model->to(x.scalar_type());
  io::load_module_state(*model, weights);
  const auto optimizer = make_optimizer(args[0], groups_of(*model, run));
  optim::load_torch_state_dict(*optimizer, run.at("optimizer"));
  GradScaler scaler;
  scaler.load_state_dict(io::to_state_dict(run.at("scaler")));
  for (int64_t i = 0; i < x.size(0); ++i) {
    optimizer->zero_grad();
    const auto loss = torch::mse_loss(model->forward(x[i]), y[i]);
    scaler.scale(loss).backward();
    scaler.step(*optimizer);
    scaler.update();
  }
  io::TorchDict result;
  result.set("model", io::to_torch_dict(io::module_state(*model)));
  result.set("optimizer", optim::to_torch_state_dict(*optimizer));
  result.set("scaler", io::to_torch_dict(scaler.state_dict()));
  io::save_torch_state(args[2], result);
}

const Command kTorchTrain{"torch_train", train_torch_optim_state};

} // namespace
} // namespace ampkit::oracle
