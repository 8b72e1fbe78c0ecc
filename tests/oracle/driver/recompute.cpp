#include <ampkit/amp/recompute.h>

#include <map>
#include <optional>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/cpu_kernels.h>
#include <ampkit/io/safetensors.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;
using Layer = std::function<at::Tensor(at::Tensor)>;
using Leaves = std::map<std::string, at::Tensor>;

constexpr int kLayers = 4;

// make_layer() of test_recompute.py.
Layer make_layer(
    const Leaves& leaves, int index, double dropout, std::vector<int>& calls) {
  const auto suffix = "." + std::to_string(index % 3);
  return [w1 = leaves.at("w1" + suffix),
          b1 = leaves.at("b1" + suffix),
          w2 = leaves.at("w2" + suffix),
          index,
          dropout,
          &calls](const at::Tensor& x) {
    auto hidden = torch::gelu(torch::linear(x, w1, b1));
    hidden = torch::dropout(hidden, dropout, /*train=*/true);
    auto result = x + torch::linear(torch::softmax(hidden, -1), w2);
    ++calls[static_cast<size_t>(index)];
    return result;
  };
}

// forward() of test_recompute.py.
at::Tensor forward(
    const std::string& mode, const std::vector<Layer>& layers, at::Tensor x) {
  if (mode == "sequential") {
    return checkpoint_sequential(layers, 2, x);
  }
  if (mode == "nested") {
    for (size_t i = 0; i < layers.size(); i += 2) {
      x = checkpoint(
          [first = layers[i], second = layers[i + 1]](const at::Tensor& inner) {
            return checkpoint(second, checkpoint(first, inner));
          },
          x);
    }
    return x;
  }
  for (const Layer& layer : layers) {
    if (mode == "plain") {
      x = layer(x);
      continue;
    }
    RecomputeOptions options{.preserve_rng_state = mode != "no_rng"};
    if (mode == "selective") {
      options.save_results_of = {"mm", "addmm"};
    }
    x = checkpoint(options, layer, x);
  }
  return x;
}

std::vector<int> run_case(
    const json& one, const Leaves& leaves, Leaves& results) {
  std::vector<int> calls(kLayers);
  std::vector<Layer> layers;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(make_layer(leaves, i, one.at("dropout"), calls));
  }
  torch::manual_seed(one.at("seed").get<uint64_t>());
  {
    std::optional<Autocast> region;
    if (one.at("region") != "off") {
      region.emplace(
          torch::kCPU,
          one.at("region") == "bf16" ? torch::kBFloat16 : torch::kHalf);
    }
    results["y"] = forward(one.at("mode"), layers, leaves.at("x"));
  }
  results["y"].to(torch::kFloat).square().sum().backward();
  results["y"] = results["y"].detach();
  results["random"] = torch::rand({4});
  return calls;
}

// recompute FOLDER: from cases.json and in.safetensors to out.json and
// out.safetensors.
void run_recompute(std::span<const std::string> args) {
  set_cpu_16bit(Cpu16Bit::native); // the kernels that Python has
  const io::SafetensorsReader inputs(args[0] + "/in.safetensors");
  io::NamedTensors outputs;
  json all_calls = json::array();
  for (const json& one : read_json(args[0] + "/cases.json")) {
    Leaves leaves;
    for (const auto& info : inputs.tensors()) {
      leaves[info.name] = inputs.copy(info.name).requires_grad_();
    }
    Leaves results;
    const auto calls = run_case(one, leaves, results);
    for (const auto& [name, leaf] : leaves) {
      results[name] = leaf.grad();
    }
    const auto suffix = "/" + std::to_string(all_calls.size());
    for (const auto& [name, value] : results) {
      outputs.emplace_back(name + suffix, value);
    }
    all_calls.push_back(calls);
  }
  io::save_safetensors(args[0] + "/out.safetensors", outputs);
  write_json(args[0] + "/out.json", all_calls);
}

const Command kRecompute{"recompute", run_recompute};

} // namespace
} // namespace ampkit::oracle
