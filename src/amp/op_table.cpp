#include "amp/op_table.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ampkit/io/nearest_name.h>

#include "amp/op_lists.h"

namespace ampkit {
namespace {

c10::OperatorName full_name(std::string_view name) {
  std::string text(name);
  if (text.find("::") == std::string::npos) {
    text = "aten::" + text;
  }
  const auto dot = text.find('.', text.find("::"));
  return dot == std::string::npos
             ? c10::OperatorName(text, "")
             : c10::OperatorName(text.substr(0, dot), text.substr(dot + 1));
}

bool contains(
    std::span<const std::string_view> list, const c10::OperatorName& name) {
  return std::any_of(list.begin(), list.end(), [&](std::string_view item) {
    return full_name(item) == name;
  });
}

OpRule stock_rule(const c10::OperatorName& name, c10::DeviceType device) {
  if (contains(stock_lower_precision(device), name)) {
    return OpRule::lower_precision;
  }
  if (contains(stock_promote(device), name)) {
    return OpRule::promote;
  }
  if (contains(stock_refuse(device), name)) {
    return OpRule::refuse;
  }
  return OpRule::float32;
}

struct Table {
  std::mutex mutex;
  std::deque<OpEntry> entries;
  std::unordered_map<c10::OperatorName, OpEntry*> by_name;

  Table() {
    // Before anything of ours is registered: what has a kernel is LibTorch's.
    auto& dispatcher = c10::Dispatcher::singleton();
    for (size_t slot = 0; slot < kAutocastDevices; ++slot) {
      const auto device = slot_device(slot);
      const auto key =
          at::autocast::get_autocast_dispatch_key_from_device_type(device);
      for (const auto& name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findOp(name);
        if (op.has_value() && op->hasKernelForDispatchKey(key)) {
          OpEntry& entry = get(name);
          entry.on[slot].listed = true;
          entry.on[slot].stock = stock_rule(name, device);
        }
      }
    }
  }

  OpEntry& get(const c10::OperatorName& name) {
    OpEntry*& known = by_name[name];
    if (known == nullptr) {
      known = &entries.emplace_back(name, entries.size());
    }
    return *known;
  }
};

Table& table() {
  static auto* instance = new Table; // kernels may run during exit
  return *instance;
}

// Whether an op takes tensors and changes none of its arguments.
bool is_functional(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto takes_tensors = [](const c10::Argument& argument) {
    const auto kind = argument.type()->kind();
    return kind == c10::TypeKind::TensorType ||
           argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
  };
  return !schema.is_mutable() &&
         std::any_of(arguments.begin(), arguments.end(), takes_tensors);
}

} // namespace

namespace op_table {

OpEntry& entry(const c10::OperatorName& name) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  return all.get(name);
}

std::vector<OpEntry*> entries() {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  std::vector<OpEntry*> result;
  result.reserve(all.entries.size());
  for (OpEntry& item : all.entries) {
    result.push_back(&item);
  }
  return result;
}

size_t size() {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  return all.entries.size();
}

std::vector<c10::OperatorName> match(std::string_view name, const char* who) {
  const auto wanted = full_name(name);
  const bool any_overload = name.find('.') == std::string_view::npos;
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorName> found;
  std::vector<std::string> known;
  bool exists = false;
  for (const auto& candidate : dispatcher.getAllOpNames()) {
    known.push_back(
        any_overload ? printed({candidate.name, ""}) : printed(candidate));
    if (candidate.name != wanted.name ||
        (!any_overload && candidate.overload_name != wanted.overload_name)) {
      continue;
    }
    exists = true;
    const auto op = dispatcher.findOp(candidate);
    if (op.has_value() && op->hasSchema() && is_functional(op->schema())) {
      found.push_back(candidate);
    }
  }
  if (!exists) {
    const auto guess = nearest_name(std::string(name), known);
    TORCH_CHECK_VALUE(
        false,
        who,
        ": LibTorch has no op '",
        name,
        "'",
        guess.empty() ? "" : "; did you mean '" + guess + "'?");
  }
  TORCH_CHECK_VALUE(
      !found.empty(),
      who,
      ": op '",
      name,
      "' has no form that takes tensors and leaves them as they are; in-place "
      "and out= forms keep to their inputs' dtypes");
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.overload_name < b.overload_name;
  });
  return found;
}

std::string printed(const c10::OperatorName& name) {
  const auto text = toString(name);
  return text.starts_with("aten::") ? text.substr(6) : text;
}

} // namespace op_table

} // namespace ampkit
