#include <ampkit/amp/fp8.h>

#include <ampkit/io/safetensors.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;

torch::Dtype fp8_dtype(const std::string& name) {
  TORCH_CHECK_VALUE(name == "e4m3" || name == "e5m2", "unknown dtype ", name);
  return name == "e4m3" ? torch::kFloat8_e4m3fn : torch::kFloat8_e5m2;
}

Fp8Options options_of(const json& settings) {
  Fp8Options options;
  const std::string recipe = settings.at("recipe");
  options.recipe = recipe == "current"   ? Fp8Recipe::current
                   : recipe == "delayed" ? Fp8Recipe::delayed
                                         : Fp8Recipe::row_wise;
  if (settings.contains("round_scales_to_power_of_2")) {
    options.round_scales_to_power_of_2 =
        settings.at("round_scales_to_power_of_2").get<bool>();
  }
  if (settings.contains("fp8_format")) {
    options.fp8_format = settings.at("fp8_format") == "e4m3"
                             ? Fp8Format::e4m3
                             : Fp8Format::hybrid;
  }
  options.amax_history_len = settings.value("amax_history_len", 1024);
  options.margin = settings.value("margin", 0);
  options.amax_compute_algo =
      settings.value("amax_compute_algo", "max") == "max"
          ? Fp8AmaxAlgorithm::max
          : Fp8AmaxAlgorithm::most_recent;
  return options;
}

// fp8_quantize e4m3|e5m2 INPUT OUTPUT: each tensor of INPUT by its own scale
// and by 1, as bytes.
void quantize(std::span<const std::string> args) {
  const auto dtype = fp8_dtype(args[0]);
  const io::SafetensorsReader inputs(args[1]);
  io::NamedTensors outputs;
  const auto add = [&](const std::string& name,
                       const torch::Tensor& tensor,
                       const torch::Tensor& scale) {
    outputs.emplace_back(
        name, fp8_quantize(tensor, dtype, scale).view(torch::kByte));
  };
  for (const auto& info : inputs.tensors()) {
    const std::string& name = info.name;
    const auto tensor = inputs.copy(name);
    const auto amax = tensor.abs().max();
    for (const bool round : {false, true}) {
      const auto scale = fp8_scale(amax, dtype, round);
      const std::string key = name + (round ? ".rounded" : ".exact");
      outputs.emplace_back(key + ".scale", scale);
      add(key, tensor, scale);
    }
    add(name + ".one", tensor, torch::ones({}));
  }
  io::save_safetensors(args[2], outputs);
}

// fp8_linear SETTINGS INPUT OUTPUT: a linear layer with weight "weight" and
// bias "bias", trained on "input.<i>" with the output gradients "grad.<i>",
// without an optimizer; the state after each step.
void run_linear(std::span<const std::string> args) {
  const json settings = read_json(args[0]);
  const io::SafetensorsReader inputs(args[1]);
  const auto weight = inputs.copy("weight").requires_grad_();
  const auto bias = inputs.copy("bias").requires_grad_();
  Fp8Linears fp8({weight}, options_of(settings));
  io::NamedTensors outputs;
  for (int step = 0; step < settings.at("steps").get<int>(); ++step) {
    const std::string index = "." + std::to_string(step);
    const auto input = inputs.copy("input" + index).requires_grad_();
    weight.mutable_grad() = torch::Tensor();
    bias.mutable_grad() = torch::Tensor();
    const auto output = fp8.linear(input, weight, bias);
    output.backward(inputs.copy("grad" + index).to(torch::kBFloat16));
    fp8.update();
    outputs.emplace_back("output" + index, output.detach());
    outputs.emplace_back("grad_input" + index, input.grad());
    outputs.emplace_back("grad_weight" + index, weight.grad().contiguous());
    outputs.emplace_back("grad_bias" + index, bias.grad());
    const io::StateDict state = fp8.state_dict();
    for (const auto& [name, value] : state.entries()) {
      if (const auto* tensor = std::get_if<torch::Tensor>(&value)) {
        outputs.emplace_back(name + index, *tensor);
      }
    }
  }
  io::save_safetensors(args[2], outputs);
}

const Command kFp8Quantize{"fp8_quantize", quantize};
const Command kFp8Linear{"fp8_linear", run_linear};

} // namespace
} // namespace ampkit::oracle
