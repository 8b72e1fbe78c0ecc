#include <ampkit/amp/autocast.h>

#include <ampkit/io/safetensors.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

// autocast bf16|fp16 FOLDER OUTPUT: runs every traced op under the guard.
void run_ops(std::span<const std::string> args) {
  // TorchScript would cast by rules of its own, and split addmm in two, before
  // our kernels see the op.
  torch::jit::setAutocastMode(false);
  torch::jit::setGraphExecutorOptimize(false);
  const auto dtype = args[0] == "bf16" ? torch::kBFloat16 : torch::kHalf;
  const io::SafetensorsReader inputs(args[1] + "/in.safetensors");
  io::NamedTensors outputs;
  for (const std::string name : read_json(args[1] + "/names.json")) {
    auto op = torch::jit::load(args[1] + "/" + name + ".pt");
    std::vector<c10::IValue> values;
    for (const char* index : {".0", ".1", ".2"}) {
      values.emplace_back(inputs.copy(name + index));
    }
    Autocast autocast(torch::kCPU, dtype);
    outputs.emplace_back(name, op.forward(values).toTensor().contiguous());
  }
  io::save_safetensors(args[2], outputs);
}

const Command kAutocast{"autocast", run_ops};

} // namespace
} // namespace ampkit::oracle
