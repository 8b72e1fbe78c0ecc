#include <ampkit/zoo/models/model.h>

#include <ampkit/io/module_state.h>
#include <ampkit/io/safetensors.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

zoo::Model make(const nlohmann::json& options) {
  torch::manual_seed(options.at("seed").get<uint64_t>());
  return zoo::make_model(
      {.name = options.at("name"),
       .stem = options.at("stem") == "small" ? zoo::Stem::small
                                             : zoo::Stem::imagenet,
       .in_channels = options.at("in_channels"),
       .num_classes = options.at("num_classes")});
}

io::NamedTensors tensors_of(const io::StateDict& state) {
  io::NamedTensors result;
  for (const auto& [name, value] : state.entries()) {
    result.emplace_back(name, std::get<at::Tensor>(value));
  }
  return result;
}

// models_init OPTIONS OUTPUT: the weights as made; their order in the header.
void init_models(std::span<const std::string> args) {
  const auto model = make(read_json(args[0]));
  io::save_safetensors(args[1], tensors_of(io::module_state(*model.module)));
}

// models_run OPTIONS WEIGHTS BATCH OUTPUT: a training pass, its gradients, the
// running statistics after it, and an evaluation pass.
void run_models(std::span<const std::string> args) {
  auto model = make(read_json(args[0]));
  io::StateDict weights;
  for (auto& [name, tensor] : io::load_safetensors(args[1])) {
    weights.set(name, tensor);
  }
  io::load_module_state(*model.module, weights);
  const io::SafetensorsReader batch(args[2]);
  const auto x = batch.copy("x");

  const auto logits = model.forward(x);
  torch::cross_entropy_loss(logits, batch.copy("y")).backward();
  io::NamedTensors result{{"logits", logits.detach()}};
  for (const auto& item : model.module->named_parameters()) {
    result.emplace_back("grad." + item.key(), item.value().grad());
  }
  for (const auto& item : model.module->named_buffers()) {
    result.emplace_back("buffer." + item.key(), item.value());
  }
  model.module->eval();
  result.emplace_back("eval_logits", model.forward(x).detach());
  io::save_safetensors(args[3], result);
}

const Command kModelsInit{"models_init", init_models};
const Command kModelsRun{"models_run", run_models};

} // namespace
} // namespace ampkit::oracle
