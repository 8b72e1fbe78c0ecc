#include <ampkit/io/module_state.h>

#include <map>
#include <sstream>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
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

// The tensors themselves, not detached: a tied parameter is the same object.
StateDict members_of(const torch::nn::Module& module) {
  StateDict state;
  collect(module, "", state);
  return state;
}

bool fits(
    const at::Tensor& member, const StateValue& value, bool convert_dtype) {
  const auto* tensor = std::get_if<at::Tensor>(&value);
  if (tensor == nullptr || tensor->sizes() != member.sizes()) {
    return false;
  }
  return tensor->scalar_type() == member.scalar_type() ||
         (convert_dtype && tensor->is_floating_point() &&
          member.is_floating_point());
}

// Bit for bit, so that a NaN equals itself. Waits for the device unless both
// are one tensor.
bool same_values(const StateValue& first, const StateValue& second) {
  const auto* a = std::get_if<at::Tensor>(&first);
  const auto* b = std::get_if<at::Tensor>(&second);
  if (a == nullptr || b == nullptr) {
    return false;
  }
  if (a->is_same(*b)) {
    return true;
  }
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.detach().to(at::kCPU).contiguous().flatten().view(at::kByte);
  };
  return a->scalar_type() == b->scalar_type() && a->sizes() == b->sizes() &&
         bytes(*a).equal(bytes(*b));
}

// Compares a module's members with a state and collects what does not fit.
class Comparison {
 public:
  Comparison(const StateDict& members, const StateDict& state)
      : members_(members), state_(state) {
    for (const auto& [name, value] : members_.entries()) {
      const auto* tensor = std::get<at::Tensor>(value).unsafeGetTensorImpl();
      if (state_.contains(name)) {
        given_.emplace(tensor, name);
      }
    }
  }

  void check(const LoadModuleStateOptions& options) {
    for (const auto& [name, value] : members_.entries()) {
      check_member(name, std::get<at::Tensor>(value), options);
    }
    for (const auto& entry : state_.entries()) {
      if (options.strict && !members_.contains(entry.first)) {
        problems_ << "\n  unexpected: " << entry.first;
      }
    }
    const std::string problems = problems_.str();
    TORCH_CHECK(
        problems.empty(),
        "load_module_state: the state does not fit the module; nothing was "
        "loaded:",
        problems);
  }

 private:
  void check_member(
      const std::string& name,
      const at::Tensor& member,
      const LoadModuleStateOptions& options) {
    const auto given = given_.find(member.unsafeGetTensorImpl());
    const StateValue* value = state_.find(name);
    if (value == nullptr) {
      if (options.strict && given == given_.end()) {
        problems_ << "\n  missing: " << name << ", " << describe(member);
      }
      return;
    }
    if (!fits(member, *value, options.convert_dtype)) {
      problems_ << "\n  mismatched: " << name << " is " << describe(member)
                << ", the state has " << describe(*value);
    } else if (!same_values(*value, *state_.find(given->second))) {
      problems_ << "\n  mismatched: " << name << " and " << given->second
                << " are one tensor, but the state has two different ones";
    }
  }

  const StateDict& members_;
  const StateDict& state_;
  // The first name under which the state has each tensor of the module.
  std::map<const c10::TensorImpl*, std::string> given_;
  std::ostringstream problems_;
};

} // namespace

StateDict module_state(const torch::nn::Module& module) {
  const StateDict members = members_of(module);
  StateDict state;
  for (const auto& [name, value] : members.entries()) {
    state.set(name, std::get<at::Tensor>(value).detach());
  }
  return state;
}

void load_module_state(
    torch::nn::Module& module,
    const StateDict& state,
    const LoadModuleStateOptions& options) {
  const StateDict members = members_of(module);
  Comparison(members, state).check(options);
  const at::NoGradGuard no_grad;
  for (const auto& [name, value] : members.entries()) {
    if (state.contains(name)) {
      std::get<at::Tensor>(value).copy_(state.tensor(name));
    }
  }
}

} // namespace ampkit::io
