#include <ampkit/io/module_state.h>

#include <map>
#include <sstream>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include "io/module_members.h"

namespace ampkit::io {
namespace {

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
        problems,
        hint());
  }

 private:
  // What to do if every entry would fit under another prefix.
  std::string hint() const {
    if (members_.empty() || state_.empty()) {
      return "";
    }
    const auto& ours = members_.entries().front().first;
    const auto& theirs = state_.entries().front().first;
    const bool longer = theirs.ends_with("." + ours);
    if (!longer && !ours.ends_with("." + theirs)) {
      return "";
    }
    const std::string prefix =
        longer ? theirs.substr(0, theirs.size() - ours.size())
               : ours.substr(0, ours.size() - theirs.size());
    const StateDict& long_names = longer ? state_ : members_;
    const StateDict& short_names = longer ? members_ : state_;
    for (const auto& entry : short_names.entries()) {
      if (!long_names.contains(prefix + entry.first)) {
        return "";
      }
    }
    return c10::str(
        "\n  all names differ by a prefix: give rename = replace_prefixes({{\"",
        longer ? prefix : "",
        "\", \"",
        longer ? "" : prefix,
        "\"}})");
  }

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
  const StateDict members = module_members(module);
  StateDict state;
  for (const auto& [name, value] : members.entries()) {
    state.set(name, std::get<at::Tensor>(value).detach());
  }
  return state;
}

void load_module_state(
    torch::nn::Module& module,
    const StateDict& given,
    const LoadModuleStateOptions& options) {
  const StateDict state =
      options.rename ? renamed(given, options.rename) : given;
  const StateDict members = module_members(module);
  Comparison(members, state).check(options);
  const at::NoGradGuard no_grad;
  for (const auto& [name, value] : members.entries()) {
    if (state.contains(name)) {
      std::get<at::Tensor>(value).copy_(state.tensor(name));
    }
  }
}

} // namespace ampkit::io
