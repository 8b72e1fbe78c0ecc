#include "amp/module_binding.h"

namespace ampkit {

int ModuleBinding::add(std::string path, std::string pattern) {
  Module& module = modules_.emplace_back();
  module.path = std::move(path);
  module.pattern = std::move(pattern);
  return size() - 1;
}

void ModuleBinding::claim(const at::Tensor& parameter, int module) {
  if (by_parameter_.emplace(parameter.unsafeGetTensorImpl(), module).second) {
    parameters_.push_back(parameter);
    modules_.at(static_cast<size_t>(module)).parameter_count +=
        parameter.numel();
  }
}

const std::string& ModuleBinding::path(int module) const {
  return modules_.at(static_cast<size_t>(module)).path;
}

const std::string& ModuleBinding::pattern(int module) const {
  return modules_.at(static_cast<size_t>(module)).pattern;
}

int64_t ModuleBinding::parameter_count(int module) const {
  return modules_.at(static_cast<size_t>(module)).parameter_count;
}

at::ScalarType ModuleBinding::dtype(int module) const {
  return modules_[static_cast<size_t>(module)].dtype.load(
      std::memory_order_relaxed);
}

void ModuleBinding::set_dtype(int module, at::ScalarType dtype) {
  const auto before =
      modules_.at(static_cast<size_t>(module)).dtype.exchange(dtype);
  decided_ += static_cast<int>(dtype != at::ScalarType::Undefined) -
              static_cast<int>(before != at::ScalarType::Undefined);
}

int ModuleBinding::find(const at::Tensor& tensor) const {
  if (!tensor.defined()) {
    return -1;
  }
  const auto* parameter = tensor.is_view()
                              ? tensor._base().unsafeGetTensorImpl()
                              : tensor.unsafeGetTensorImpl();
  const auto found = by_parameter_.find(parameter);
  return found == by_parameter_.end() ? -1 : found->second;
}

} // namespace ampkit
