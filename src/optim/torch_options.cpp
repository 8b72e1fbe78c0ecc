#include "optim/torch_options.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace ampkit::optim {
namespace {

using Entries = std::vector<io::StateDict::Entry>;
using io::TorchDict;
using io::TorchTuple;
using io::TorchValue;

// Options of torch.optim that say how it computes, not what, and labels.
constexpr std::string_view kIgnored[] = {
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    "initial_lr",
    "name",
    "params",
    "param_names"};

// Options that an optimizer may not have here, and then the only value of
// torch.optim that means the same.
struct Fixed {
  const char* optimizer; // nullptr: of all
  const char* option;
  bool value;
};

constexpr Fixed kFixed[] = {
    {"Adam", "decoupled_weight_decay", false},
    {"AdamW", "decoupled_weight_decay", true},
    {nullptr, "amsgrad", false},
    {nullptr, "maximize", false}};

// torch.optim names them, the optimizers here number them. None is the first.
const std::map<std::string, std::vector<std::string>>& choices() {
  static const std::map<std::string, std::vector<std::string>> instance{
      {"adjust_lr_fn", {"original", "match_rms_adamw"}}};
  return instance;
}

// Stands for None where an option may have no value.
constexpr double kNone = -1;

/// "betas.second" is item 1 of "betas"; "lr" is no item.
struct OptionName {
  std::string key;
  bool is_item = false;
  size_t item = 0;
};

OptionName parse(const std::string& option) {
  const size_t dot = option.find('.');
  if (dot == std::string::npos) {
    return {option};
  }
  const std::string item = option.substr(dot + 1);
  const size_t index = item == "first"    ? 0
                       : item == "second" ? 1
                                          : std::stoul(item);
  return {option.substr(0, dot), true, index};
}

TorchValue to_torch(const OptionName& name, const io::StateValue& value) {
  const auto choice = choices().find(name.key);
  if (choice != choices().end()) {
    return choice->second.at(static_cast<size_t>(std::get<int64_t>(value)));
  }
  const auto* real = std::get_if<double>(&value);
  if (name.is_item && real != nullptr && *real == kNone) {
    return nullptr;
  }
  return value;
}

// The value under `name`, or nullptr.
const TorchValue* find(const TorchDict& group, const OptionName& name) {
  const TorchValue* value = group.find(name.key);
  if (value == nullptr || !name.is_item) {
    return value;
  }
  const auto* tuple = std::get_if<TorchTuple>(&value->variant());
  return tuple != nullptr && name.item < tuple->items.size()
             ? &tuple->items[name.item]
             : nullptr;
}

io::StateValue to_choice(const std::string& key, const TorchValue& value) {
  const auto& names = choices().at(key);
  if (value.is_none()) {
    return int64_t{0};
  }
  const auto place = std::find(names.begin(), names.end(), value.text());
  TORCH_CHECK(
      place != names.end(), "should be '", names.front(), "' or another name");
  return static_cast<int64_t>(place - names.begin());
}

// `value` in the kind of `like`; throws if it has none.
io::StateValue from_torch(
    const OptionName& name,
    const TorchValue& value,
    const io::StateValue& like) {
  if (choices().contains(name.key)) {
    return to_choice(name.key, value);
  }
  if (std::holds_alternative<bool>(like)) {
    return value.boolean();
  }
  if (std::holds_alternative<int64_t>(like)) {
    return value.integer();
  }
  return name.is_item && value.is_none() ? kNone : number_of(value);
}

void check_others(
    const TorchDict& group,
    const std::set<std::string>& known,
    const std::string& optimizer,
    std::vector<std::string>& problems) {
  for (const auto& [key, value] : group.entries()) {
    const std::string name = std::holds_alternative<std::string>(key)
                                 ? std::get<std::string>(key)
                                 : io::describe_key(key);
    if (known.contains(name) ||
        std::count(std::begin(kIgnored), std::end(kIgnored), name) > 0) {
      continue;
    }
    const auto* fixed = std::find_if(
        std::begin(kFixed), std::end(kFixed), [&](const Fixed& item) {
          return name == item.option &&
                 (item.optimizer == nullptr || optimizer == item.optimizer);
        });
    const auto* flag = std::get_if<bool>(&value.variant());
    if (fixed == std::end(kFixed)) {
      problems.push_back("'" + name + "' is unknown here");
    } else if (flag == nullptr || *flag != fixed->value) {
      problems.push_back(c10::str(
          "'",
          name,
          "' is ",
          value.describe(),
          ", which ",
          optimizer,
          " does not support"));
    }
  }
}

} // namespace

double number_of(const TorchValue& value) {
  const auto* tensor = std::get_if<at::Tensor>(&value.variant());
  if (tensor == nullptr) {
    return value.real();
  }
  TORCH_CHECK(
      tensor->numel() == 1 && !tensor->is_complex(),
      "should be a number, got ",
      value.describe());
  return tensor->item<double>();
}

Entries options_of(const io::StateDict& flat, size_t g) {
  Entries options;
  const std::string prefix = "group." + std::to_string(g) + ".";
  for (const auto& [key, value] : flat.entries()) {
    const std::string option =
        key.starts_with(prefix) ? key.substr(prefix.size()) : "";
    if (!option.empty() && option != "name" &&
        !option.starts_with("parameter.")) {
      options.emplace_back(option, value);
    }
  }
  return options;
}

TorchDict to_torch_group(const Entries& options, const std::string& optimizer) {
  TorchDict group;
  for (const auto& [option, value] : options) {
    const OptionName name = parse(option);
    if (!name.is_item) {
      group.set(name.key, to_torch(name, value));
      continue;
    }
    TorchTuple tuple;
    if (const TorchValue* before = group.find(name.key)) {
      tuple.items = before->items();
    }
    tuple.items.push_back(to_torch(name, value));
    group.set(name.key, std::move(tuple));
  }
  for (const Fixed& fixed : kFixed) {
    if (fixed.optimizer != nullptr && optimizer == fixed.optimizer) {
      group.set(fixed.option, fixed.value);
    }
  }
  // What else torch.optim wants it adds itself on loading.
  return group;
}

TorchOptions from_torch_group(
    const TorchDict& group,
    const Entries& wanted,
    const std::string& optimizer) {
  TorchOptions result;
  std::set<std::string> known;
  for (const auto& [option, current] : wanted) {
    const OptionName name = parse(option);
    known.insert(name.key);
    const TorchValue* value = find(group, name);
    if (value == nullptr) {
      result.problems.push_back("'" + option + "' is missing");
      continue;
    }
    try {
      result.options.emplace_back(option, from_torch(name, *value, current));
    } catch (const c10::Error& error) {
      result.problems.push_back(
          "'" + option + "': " + error.what_without_backtrace());
    }
  }
  check_others(group, known, optimizer, result.problems);
  return result;
}

} // namespace ampkit::optim
