#include "io/module_members.h"

#include <torch/nn/module.h>

namespace ampkit::io {
namespace {

void collect(
    const torch::nn::Module& module,
    const std::string& prefix,
    StateDict& state) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) {
      state.set(prefix + item.key(), item.value());
    }
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) {
      state.set(prefix + item.key(), item.value());
    }
  }
  for (const auto& item : module.named_children()) {
    if (item.value() != nullptr) {
      collect(*item.value(), prefix + item.key() + ".", state);
    }
  }
}

} // namespace

StateDict module_members(const torch::nn::Module& module) {
  StateDict state;
  collect(module, "", state);
  return state;
}

} // namespace ampkit::io
