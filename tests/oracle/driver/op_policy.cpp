#include <ampkit/amp/autocast.h>

#include <ampkit/io/safetensors.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

// op_policy POLICY bf16|fp16 FOLDER OUTPUT: runs every op under that policy.
void run_under_policy(std::span<const std::string> args) {
  // TorchScript would cast by rules of its own.
  torch::jit::setAutocastMode(false);
  torch::jit::setGraphExecutorOptimize(false);
  const auto dtype = args[1] == "bf16" ? torch::kBFloat16 : torch::kHalf;
  const AutocastOptions options{.ops = OpPolicy::parse(args[0])};
  const io::SafetensorsReader inputs(args[2] + "/in.safetensors");
  const auto methods = read_json(args[2] + "/ops.json");
  auto ops = torch::jit::load(args[2] + "/ops.pt");
  io::NamedTensors outputs;
  for (const auto& [name, method] : methods.items()) {
    std::vector<c10::IValue> values;
    for (const char* index : {".0", ".1", ".2"}) {
      values.emplace_back(inputs.copy(name + index));
    }
    const Autocast autocast(torch::kCPU, dtype, options);
    const auto result =
        ops.get_method(method.get<std::string>())(values).toTensor();
    outputs.emplace_back(name, result.contiguous());
  }
  io::save_safetensors(args[3], outputs);
}

const Command kOpPolicy{"op_policy", run_under_policy};

} // namespace
} // namespace ampkit::oracle
