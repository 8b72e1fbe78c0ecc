#include <ampkit/amp/module_policy.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include <ampkit/io/nearest_name.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include "amp/module_binding.h"
#include "amp/path_pattern.h"

namespace ampkit {
namespace {

using Rules = std::vector<ModulePolicy::Rule>;

const ModulePolicy::Rule* last_match(
    const Rules& rules, const std::string& path) {
  const auto found = std::find_if(
      rules.rbegin(), rules.rend(), [&](const ModulePolicy::Rule& rule) {
        return matches_path(rule.pattern, path);
      });
  return found == rules.rend() ? nullptr : &*found;
}

// Binds the parameters of one module under what the rules say of it.
void bind_module(
    const Rules& rules,
    const std::string& path,
    const std::vector<at::Tensor>& parameters,
    ModuleBinding& binding) {
  if (parameters.empty()) {
    return;
  }
  const auto* rule = last_match(rules, path);
  const int number =
      binding.add(path, rule == nullptr ? std::string() : rule->pattern);
  for (const at::Tensor& parameter : parameters) {
    binding.claim(parameter, number);
  }
  if (rule != nullptr) {
    binding.set_dtype(number, rule->dtype);
  }
}

void check_every_rule_matches(
    const Rules& rules, const ModuleBinding& binding) {
  std::vector<std::string> paths;
  for (int i = 0; i < binding.size(); ++i) {
    paths.push_back(binding.path(i));
  }
  for (const auto& rule : rules) {
    const bool matched =
        std::any_of(paths.begin(), paths.end(), [&](const auto& path) {
          return matches_path(rule.pattern, path);
        });
    const auto guess = nearest_name(rule.pattern, paths);
    TORCH_CHECK_VALUE(
        matched || rule.optional,
        "ModulePolicy::bind: pattern '",
        rule.pattern,
        "' matches no module with parameters; ",
        guess.empty() ? c10::str("the network has ", c10::Join(", ", paths))
                      : "did you mean '" + guess + "'?");
  }
}

std::shared_ptr<ModuleBinding> checked(
    const Rules& rules, std::shared_ptr<ModuleBinding> binding) {
  check_every_rule_matches(rules, *binding);
  return binding;
}

} // namespace

BoundModulePolicy::BoundModulePolicy(std::shared_ptr<ModuleBinding> binding)
    : binding_(std::move(binding)) {}

std::vector<BoundModulePolicy::Entry> BoundModulePolicy::entries() const {
  std::vector<Entry> result;
  for (int i = 0; i < binding_->size(); ++i) {
    result.push_back(
        {.path = binding_->path(i),
         .dtype = binding_->dtype(i),
         .pattern = binding_->pattern(i),
         .parameters = binding_->parameter_count(i)});
  }
  return result;
}

ModulePolicy& ModulePolicy::set(
    std::string pattern, c10::ScalarType dtype, std::string reason) {
  return set(
      {.pattern = std::move(pattern),
       .dtype = dtype,
       .reason = std::move(reason)});
}

ModulePolicy& ModulePolicy::set(Rule rule) {
  TORCH_CHECK_VALUE(
      rule.dtype == at::kFloat || rule.dtype == at::kHalf ||
          rule.dtype == at::kBFloat16,
      "ModulePolicy::set: dtype must be Float, Half or BFloat16, got ",
      rule.dtype);
  TORCH_CHECK_VALUE(
      is_path_pattern(rule.pattern),
      "ModulePolicy::set: a name is empty in pattern '",
      rule.pattern,
      "'");
  rules_.push_back(std::move(rule));
  return *this;
}

std::vector<ModulePolicy::RuleUse> ModulePolicy::uses(
    const BoundModulePolicy& bound) const {
  std::vector<RuleUse> result;
  for (const Rule& rule : rules_) {
    result.push_back({.rule = rule});
  }
  for (const auto& entry : bound.entries()) {
    // Of rules with the same pattern the last one decides.
    const auto by =
        std::find_if(result.rbegin(), result.rend(), [&](const RuleUse& use) {
          return use.rule.pattern == entry.pattern;
        });
    const bool decided = entry.dtype != at::ScalarType::Undefined;
    if (decided && by != result.rend()) {
      ++by->modules;
    }
  }
  return result;
}

BoundModulePolicy ModulePolicy::bind(const torch::nn::Module& module) const {
  auto binding = std::make_shared<ModuleBinding>();
  const auto visit = [&](const std::string& path,
                         const torch::nn::Module& each) {
    bind_module(rules_, path, each.parameters(/*recurse=*/false), *binding);
  };
  visit("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    visit(item.key(), *item.value());
  }
  return BoundModulePolicy(checked(rules_, std::move(binding)));
}

BoundModulePolicy ModulePolicy::bind(const torch::jit::Module& module) const {
  auto binding = std::make_shared<ModuleBinding>();
  for (const auto& item : module.named_modules()) {
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter :
         item.value.parameters(/*recurse=*/false)) {
      parameters.push_back(parameter);
    }
    bind_module(rules_, item.name, parameters, *binding);
  }
  return BoundModulePolicy(checked(rules_, std::move(binding)));
}

std::string to_string(const BoundModulePolicy& policy) {
  std::ostringstream out;
  const ModuleBinding& binding = *policy.binding();
  for (int i = 0; i < binding.size(); ++i) {
    const auto& path = binding.path(i);
    const auto depth =
        path.empty() ? 0 : 2 * (1 + std::count(path.begin(), path.end(), '.'));
    const auto dtype = binding.dtype(i);
    out << std::string(static_cast<size_t>(depth), ' ')
        << (path.empty() ? "(network)" : path) << "  "
        << (dtype == at::ScalarType::Undefined ? "as the region"
                                               : c10::toString(dtype))
        << "  " << binding.parameter_count(i) << " parameters";
    if (!binding.pattern(i).empty()) {
      out << "  by '" << binding.pattern(i) << "'";
    }
    out << "\n";
  }
  return out.str();
}

} // namespace ampkit
