#include <ampkit/amp/op_policy.h>

#include <algorithm>
#include <array>
#include <utility>

#include <c10/util/Exception.h>

#include "amp/compiled_ops.h"
#include "amp/op_lists.h"
#include "amp/policy_kernels.h"

namespace ampkit {
namespace {

constexpr std::array<std::pair<OpRule, const char*>, 5> kRuleNames{{
    {OpRule::inputs, "inputs"},
    {OpRule::lower_precision, "lower-precision"},
    {OpRule::float32, "float32"},
    {OpRule::promote, "promote"},
    {OpRule::refuse, "refuse"},
}};

std::vector<size_t> slots_of(
    std::optional<c10::DeviceType> device, const char* who) {
  if (!device.has_value()) {
    return {0, 1};
  }
  TORCH_CHECK_VALUE(
      *device == c10::DeviceType::CPU || *device == c10::DeviceType::CUDA,
      who,
      ": device must be cpu or cuda, got ",
      *device);
  return {device_slot(*device)};
}

// The strict choices: what either device type's stock list has in float32, and
// the groups of op_lists.
std::shared_ptr<const CompiledOps> make_strict() {
  auto ops = std::make_shared<CompiledOps>();
  ops->base = "strict";
  const auto choose_everywhere = [&](size_t index, const std::string& reason) {
    for (size_t slot = 0; slot < kAutocastDevices; ++slot) {
      ops->choose(slot, index, OpRule::float32, reason);
    }
  };
  for (const OpEntry* op : op_table::entries()) {
    const bool on_cpu = op->on[0].stock == OpRule::float32;
    const bool on_cuda = op->on[1].stock == OpRule::float32;
    if (on_cpu || on_cuda) {
      choose_everywhere(
          op->index,
          on_cuda ? "on PyTorch's float32 list for CUDA"
                  : "on PyTorch's float32 list for CPU");
    }
  }
  for (const OpGroup& group : strict_float32()) {
    for (const std::string_view name : group.ops) {
      for (const auto& found : op_table::match(name, "OpPolicy::strict")) {
        choose_everywhere(
            op_table::entry(found).index, std::string(group.reason));
      }
    }
  }
  return ops;
}

std::string stock_reason(const OpEntry& op, size_t slot) {
  if (op.annotated.has_value()) {
    return "annotate_op()";
  }
  return op.on[slot].listed ? "PyTorch's list for this device" : "on no list";
}

OpPolicyEntry describe(const CompiledOps& ops, const OpEntry& op, size_t slot) {
  const auto* choice = ops.choice(slot, op.index);
  return {
      .op = op_table::printed(op.name),
      .rule = ops.rule(slot, op),
      .reason = choice != nullptr ? choice->reason : stock_reason(op, slot)};
}

} // namespace

std::string to_string(OpRule rule) {
  for (const auto& [value, name] : kRuleNames) {
    if (value == rule) {
      return name;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "no such OpRule");
}

OpRule parse_op_rule(std::string_view name) {
  std::string valid;
  for (const auto& [value, rule_name] : kRuleNames) {
    if (name == rule_name) {
      return value;
    }
    valid += (valid.empty() ? "" : ", ") + std::string(rule_name);
  }
  TORCH_CHECK_VALUE(
      false, "parse_op_rule: unknown rule '", name, "'; valid are ", valid);
}

OpPolicy::OpPolicy() : OpPolicy(pytorch()) {}

OpPolicy::OpPolicy(std::shared_ptr<const CompiledOps> compiled)
    : compiled_(std::move(compiled)) {}

OpPolicy OpPolicy::pytorch() {
  static const auto stock = [] {
    auto ops = std::make_shared<CompiledOps>();
    ops->base = "pytorch";
    return std::shared_ptr<const CompiledOps>(std::move(ops));
  }();
  return OpPolicy(stock);
}

OpPolicy OpPolicy::strict() {
  static const auto strict = make_strict();
  return OpPolicy(strict);
}

OpPolicy OpPolicy::parse(std::string_view base) {
  TORCH_CHECK_VALUE(
      base == "pytorch" || base == "strict",
      "OpPolicy::parse: unknown policy '",
      base,
      "'; valid are pytorch, strict");
  return base == "strict" ? strict() : pytorch();
}

OpPolicy& OpPolicy::set(
    std::string_view op,
    OpRule rule,
    std::string reason,
    std::optional<c10::DeviceType> device) {
  const auto slots = slots_of(device, "OpPolicy::set");
  const auto names = op_table::match(op, "OpPolicy::set");
  auto changed = std::make_shared<CompiledOps>(*compiled_);
  for (const auto& name : names) {
    for (const size_t slot : slots) {
      changed->choose(
          slot,
          op_table::entry(name).index,
          rule,
          reason.empty() ? "set by the user" : reason);
    }
  }
  changed->edits.push_back(
      {.op = std::string(op),
       .rule = rule,
       .reason = std::move(reason),
       .device = device});
  compiled_ = std::move(changed);
  return *this;
}

OpPolicyEntry OpPolicy::entry(
    std::string_view op, c10::DeviceType device) const {
  const auto slot = slots_of(device, "OpPolicy::entry").front();
  OpPolicyEntry first;
  for (const auto& name : op_table::match(op, "OpPolicy::entry")) {
    auto found = describe(*compiled_, op_table::entry(name), slot);
    if (found.rule != OpRule::inputs) {
      return found;
    }
    if (first.op.empty()) {
      first = std::move(found);
    }
  }
  return first;
}

OpRule OpPolicy::rule(std::string_view op, c10::DeviceType device) const {
  return entry(op, device).rule;
}

std::vector<OpPolicyEntry> OpPolicy::entries(c10::DeviceType device) const {
  const auto slot = slots_of(device, "OpPolicy::entries").front();
  std::vector<OpPolicyEntry> result;
  for (const OpEntry* op : op_table::entries()) {
    const auto found = describe(*compiled_, *op, slot);
    if (found.rule != OpRule::inputs ||
        compiled_->choice(slot, op->index) != nullptr) {
      result.push_back(found);
    }
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return a.op < b.op;
  });
  return result;
}

const std::string& OpPolicy::base() const {
  return compiled_->base;
}

const std::vector<OpPolicy::Edit>& OpPolicy::edits() const {
  return compiled_->edits;
}

bool OpPolicy::operator==(const OpPolicy& other) const {
  return base() == other.base() && edits() == other.edits();
}

void annotate_op(std::string_view op, OpRule rule) {
  const auto names = op_table::match(op, "annotate_op");
  for (const auto& name : names) {
    for (const auto& on : op_table::entry(name).on) {
      TORCH_CHECK(
          !on.listed,
          "annotate_op: ",
          toString(name),
          " has an autocast kernel of its own; change its rule for a region "
          "with OpPolicy::set");
    }
  }
  for (const auto& name : names) {
    OpEntry& entry = op_table::entry(name);
    entry.annotated = rule;
    install_policy_kernel(entry);
  }
}

} // namespace ampkit
