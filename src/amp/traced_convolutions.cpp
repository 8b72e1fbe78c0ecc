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

struct EagerCall {
  c10::Symbol op;
  std::vector<torch::jit::NamedValue> arguments;
};

// The call of eager mode that does the same; none: not known.
std::optional<EagerCall> eager_call(const Node& node) {
  const auto transposed = torch::jit::toIValue(node.namedInput("transposed"));
  const auto dimensions = length_of(*node.namedInput("stride"));
  if (!transposed || dimensions < 1 || dimensions > 3) {
    return std::nullopt;
  }
  const bool transposes = transposed->toBool();
  const std::string name = transposes ? "conv_transpose" : "conv";
  std::vector<const char*> order{
      "input", "weight", "bias", "stride", "padding"};
  const auto rest = transposes
                        ? std::vector{"output_padding", "groups", "dilation"}
                        : std::vector{"dilation", "groups"};
  order.insert(order.end(), rest.begin(), rest.end());
  EagerCall call{
      c10::Symbol::aten(name + std::to_string(dimensions) + "d"), {}};
  for (const char* input : order) {
    call.arguments.emplace_back(node.namedInput(input));
  }
  return call;
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
    if (const auto call = eager_call(node)) {
      const torch::jit::WithInsertPoint here(&node);
      auto* output = node.owningGraph()->insert(
          call->op, call->arguments, {}, node.sourceRange());
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
