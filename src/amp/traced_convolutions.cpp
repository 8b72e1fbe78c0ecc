#include "amp/traced_convolutions.h"

#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

namespace ampkit {
namespace {

using torch::jit::Node;

// Of an int[]; 0: not known.
size_t length_of(const torch::jit::Value& list) {
  if (list.node()->kind() == c10::prim::ListConstruct) {
    return list.node()->inputs().size();
  }
  const auto value = torch::jit::toIValue(&list);
  return value && value->isIntList() ? value->toIntVector().size() : 0;
}

// The op that does the same; none: not known.
std::optional<c10::Symbol> eager_op(const Node& node) {
  const auto transposed = torch::jit::toIValue(node.namedInput("transposed"));
  const auto dimensions = length_of(*node.namedInput("stride"));
  if (!transposed || dimensions < 1 || dimensions > 3) {
    return std::nullopt;
  }
  const std::string name = transposed->toBool() ? "conv_transpose" : "conv";
  return c10::Symbol::aten(name + std::to_string(dimensions) + "d");
}

std::vector<torch::jit::NamedValue> arguments(const Node& node) {
  std::vector<torch::jit::NamedValue> result;
  const bool transposed =
      torch::jit::toIValue(node.namedInput("transposed"))->toBool();
  for (const char* name : {"input", "weight", "bias", "stride", "padding"}) {
    result.emplace_back(node.namedInput(name));
  }
  if (transposed) {
    result.emplace_back(node.namedInput("output_padding"));
    result.emplace_back(node.namedInput("groups"));
    result.emplace_back(node.namedInput("dilation"));
  } else {
    result.emplace_back(node.namedInput("dilation"));
    result.emplace_back(node.namedInput("groups"));
  }
  return result;
}

void restore(torch::jit::Block& block) {
  for (auto it = block.nodes().begin(); it != block.nodes().end(); ++it) {
    Node& node = **it;
    for (auto* inner : node.blocks()) {
      restore(*inner);
    }
    if (node.kind() != c10::aten::_convolution) {
      continue;
    }
    if (const auto op = eager_op(node)) {
      const torch::jit::WithInsertPoint here(&node);
      auto* output = node.owningGraph()->insert(
          *op, arguments(node), {}, node.sourceRange());
      output->setType(node.output()->type());
      node.output()->replaceAllUsesWith(output);
      it.destroyCurrent();
    }
  }
}

} // namespace

void restore_convolutions(const torch::jit::Module& module) {
  for (const auto& part : module.modules()) {
    for (const auto& method : part.get_methods()) {
      restore(*method.graph()->block());
    }
  }
}

} // namespace ampkit
