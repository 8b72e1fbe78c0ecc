// Equal averages and batch-norm statistics on the tensors of test_swa.py.

#include <ampkit/amp/cast_parameters.h>
#include <ampkit/io/safetensors.h>
#include <ampkit/optim/swa.h>
#include <ampkit/optim/update_bn.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

/// Of nn.Module.state_dict().
io::NamedTensors parameters_of(const torch::nn::Module& module) {
  io::NamedTensors tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.emplace_back(item.key(), item.value().detach());
  }
  for (const auto& item : module.named_buffers()) {
    tensors.emplace_back(item.key(), item.value());
  }
  return tensors;
}

/// ARGUMENTS: task.json tensors.safetensors result.safetensors. The module
/// takes the tensors "state.<step>.<name>" one step after the other; the result
/// has what it holds with the averages swapped in, after update_bn() on
/// "batch.<i>" if there are batches.
void run_swa(std::span<const std::string> args) {
  const json task = read_json(args[0]);
  const io::SafetensorsReader reader(args[1]);
  torch::nn::Sequential module(
      torch::nn::Linear(3, 4),
      torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).momentum(0.3)),
      torch::nn::Linear(4, 2),
      torch::nn::BatchNorm1d(2));
  const auto dtype = task["double"].get<bool>() ? at::kDouble : at::kFloat;
  cast_parameters( // Module::to() would make num_batches_tracked inexact
      *module,
      Precision{.parameters = dtype, .buffers = dtype},
      {.keep_norm_layers_fp32 = false});
  optim::StochasticWeightAverage swa(
      *module, {.use_buffers = task["use_buffers"]});
  const at::NoGradGuard no_grad;
  for (int64_t step = 0; step < task["steps"].get<int64_t>(); ++step) {
    const auto prefix = "state." + std::to_string(step) + ".";
    for (const auto& [name, tensor] : parameters_of(*module)) {
      tensor.copy_(reader.view(prefix + name));
    }
    swa.update();
  }
  const auto averaged = swa.swap_in();
  const int64_t batches = task["batches"];
  if (batches > 0) {
    optim::update_bn(*module, [&] {
      for (int64_t i = 0; i < batches; ++i) {
        module->forward(reader.view("batch." + std::to_string(i)));
      }
    });
  }
  io::save_safetensors(args[2], parameters_of(*module));
}

const Command kSwa{"swa", run_swa};

} // namespace
} // namespace ampkit::oracle
