#include "diagnose/named_tensors.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

namespace ampkit::diagnose {

NamedTensors::NamedTensors(const torch::nn::Module& module) {
  const auto visit = [&](const std::string& path,
                         const torch::nn::Module& each) {
    for (const auto& item : each.named_parameters(/*recurse=*/false)) {
      add(path, item.key(), item.value(), true);
    }
    for (const auto& item : each.named_buffers(/*recurse=*/false)) {
      add(path, item.key(), item.value(), false);
    }
  };
  visit("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    visit(item.key(), *item.value());
  }
}

NamedTensors::NamedTensors(const torch::jit::Module& module) {
  for (const auto& item : module.named_modules()) {
    for (const auto& each : item.value.named_parameters(/*recurse=*/false)) {
      add(item.name, each.name, each.value, true);
    }
    for (const auto& each : item.value.named_buffers(/*recurse=*/false)) {
      add(item.name, each.name, each.value, false);
    }
  }
}

void NamedTensors::add(
    const std::string& path,
    const std::string& name,
    const at::Tensor& tensor,
    bool parameter) {
  if (!tensor.defined() ||
      !by_tensor_
           .emplace(
               tensor.unsafeGetTensorImpl(), static_cast<int>(entries_.size()))
           .second) {
    return; // a tied one belongs to whom claimed it first
  }
  const auto known = by_path_.find(path);
  const int module =
      known == by_path_.end() ? modules_.add(path) : known->second;
  by_path_.emplace(path, module);
  modules_.claim(tensor, module);
  entries_.push_back(
      {.name = path.empty() ? name : path + "." + name,
       .module = module,
       .parameter = parameter,
       .tensor = tensor});
}

int NamedTensors::find(const at::Tensor& tensor) const {
  if (modules_.find(tensor) < 0) {
    return -1;
  }
  const auto* base = tensor.is_view() ? tensor._base().unsafeGetTensorImpl()
                                      : tensor.unsafeGetTensorImpl();
  const auto found = by_tensor_.find(base);
  return found == by_tensor_.end() ? -1 : found->second;
}

const NamedTensors::Entry& NamedTensors::entry(int number) const {
  return entries_.at(static_cast<size_t>(number));
}

const std::string& NamedTensors::module_path(int module) const {
  return modules_.path(module);
}

std::vector<std::string> NamedTensors::module_paths() const {
  std::vector<std::string> paths;
  for (int i = 0; i < modules_.size(); ++i) {
    paths.push_back(modules_.path(i));
  }
  return paths;
}

} // namespace ampkit::diagnose
