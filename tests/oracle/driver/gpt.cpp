#include <ampkit/zoo/models/gpt.h>

#include <torch/torch.h>

#include <ampkit/io/safetensors.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

zoo::GptOptions gpt_options(const nlohmann::json& given) {
  return {
      .vocabulary = given.at("vocabulary"),
      .width = given.at("width"),
      .layers = given.at("layers"),
      .heads = given.at("heads"),
      .length = given.at("length"),
      .tied_head = given.at("tied_head")};
}

// gpt OPTIONS WEIGHTS TOKENS OUTPUT: logits, loss and gradients with the
// weights of transformers.
void run_gpt(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 4, "usage: gpt OPTIONS WEIGHTS TOKENS OUTPUT");
  zoo::Gpt gpt(gpt_options(read_json(args[0])));
  io::StateDict weights;
  for (const auto& [name, tensor] : io::load_safetensors(args[1])) {
    weights.set(name, tensor);
  }
  zoo::load_transformers_state(*gpt, weights);
  const auto tokens = io::load_safetensors(args[2]).front().second;
  const auto loss = gpt->loss(tokens.slice(1, 0, -1), tokens.slice(1, 1));
  loss.backward();
  io::NamedTensors result{
      {"logits", gpt->forward(tokens).detach()}, {"loss", loss.detach()}};
  for (const auto& item : gpt->named_parameters()) {
    result.emplace_back("grad." + item.key(), item.value().grad());
  }
  io::save_safetensors(args[3], result);
}

const Command kGpt{"gpt", run_gpt};

} // namespace
} // namespace ampkit::oracle
