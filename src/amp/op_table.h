#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/operator_name.h>
#include <c10/core/DeviceType.h>

#include <ampkit/amp/op_policy.h>

namespace ampkit {

constexpr size_t kAutocastDevices = 2;

/// CPU: 0, CUDA: 1.
constexpr size_t device_slot(c10::DeviceType device) {
  return device == c10::DeviceType::CUDA ? 1 : 0;
}
constexpr c10::DeviceType slot_device(size_t slot) {
  return slot == 1 ? c10::DeviceType::CUDA : c10::DeviceType::CPU;
}

/// An op that autocast has something to say about. Lives as long as the
/// process, so that kernels may hold on to it.
struct OpEntry {
  /// LibTorch's own behaviour.
  struct OnDevice {
    OpRule stock = OpRule::inputs;
    /// Whether LibTorch has an autocast kernel for it.
    bool listed = false;
    /// Whether ours that asks the policy is in its place.
    std::atomic<bool> installed = false;
  };
  OpEntry(c10::OperatorName op, size_t number)
      : name(std::move(op)), index(number) {}

  const c10::OperatorName name;
  const size_t index;
  std::array<OnDevice, kAutocastDevices> on;
  /// From annotate_op().
  std::optional<OpRule> annotated;

  /// Without a policy, inside an ampkit guard.
  OpRule base_rule(size_t slot) const {
    return annotated.value_or(on[slot].stock);
  }
};

/// All entries of the process: LibTorch's lists at first use, and what was
/// named since. Thread-safe.
namespace op_table {

/// The entry of that op, made if there is none. The reference stays valid.
OpEntry& entry(const c10::OperatorName& name);

/// Entries in the order of their making.
std::vector<OpEntry*> entries();

size_t size();

/// The ops that a user means by `name` ("softmax", "softmax.int",
/// "mylib::scan"): those that take tensors and change none of them. Throws
/// c10::ValueError, prefixed with `who`, if there are none.
std::vector<c10::OperatorName> match(std::string_view name, const char* who);

/// The name as users write it: without "aten::".
std::string printed(const c10::OperatorName& name);

} // namespace op_table

} // namespace ampkit
