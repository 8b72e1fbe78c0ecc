#pragma once

#include <array>
#include <string>
#include <vector>

#include <ampkit/amp/op_policy.h>

#include "amp/op_table.h"

namespace ampkit {

/// An OpPolicy as kernels read it: a rule for each op by its number.
struct CompiledOps {
  std::string base;
  std::vector<OpPolicy::Edit> edits;

  struct Choice {
    bool made = false; // else what the op does without a policy
    OpRule rule = OpRule::inputs;
    std::string reason;
  };
  std::array<std::vector<Choice>, kAutocastDevices> choices;

  const Choice* choice(size_t slot, size_t index) const {
    const auto& list = choices[slot];
    return index < list.size() && list[index].made ? &list[index] : nullptr;
  }
  OpRule rule(size_t slot, const OpEntry& op) const {
    const Choice* made = choice(slot, op.index);
    return made != nullptr ? made->rule : op.base_rule(slot);
  }
  void choose(size_t slot, size_t index, OpRule rule, std::string reason) {
    auto& list = choices[slot];
    if (index >= list.size()) {
      list.resize(index + 1);
    }
    list[index] = {.made = true, .rule = rule, .reason = std::move(reason)};
  }
};

} // namespace ampkit
