#pragma once

#include <array>
#include <memory>

#include <c10/core/DeviceType.h>

#include "amp/cast_cache.h"
#include "amp/compiled_ops.h"
#include "amp/linear_override.h"
#include "amp/module_binding.h"

namespace ampkit {

/// What one op call is to do.
struct OpTarget {
  OpRule rule = OpRule::inputs;
  at::ScalarType dtype = at::ScalarType::Undefined; // of lower_precision
  int module = -1; // whose parameter the call uses
};

/// The policies of a region; null: none.
struct RegionPolicy {
  std::shared_ptr<const CompiledOps> ops;
  std::shared_ptr<ModuleBinding> modules;
  std::shared_ptr<LinearOverride> linears;
};

/// What the autocast kernels of ours look at; one a thread.
struct ThreadAutocast {
  /// Whether the innermost region of that device type is an ampkit guard's.
  std::array<bool, kAutocastDevices> by_ampkit{};
  bool cache_enabled = true;
  /// Ampkit guards in force; the cache lives while there are any.
  int depth = 0;
  CastCache cache;
  /// Null: none, the usual case.
  std::shared_ptr<const RegionPolicy> policy;
  /// The bound module whose parameter was used last, -1 if that of another
  /// module was: ops without parameters run as their neighbour before.
  int current_module = -1;
  /// Whether a checkpoint() runs its function again, which nobody is to count.
  bool recomputing = false;

  bool& of(c10::DeviceType type) { return by_ampkit[device_slot(type)]; }

  at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype) {
    return cache_enabled ? cache.cast(tensor, dtype) : tensor.to(dtype);
  }

  /// What a call of `op` is to do. `module`: whose parameter it uses, -1: none.
  OpTarget target(
      const OpEntry& op, size_t slot, at::ScalarType region_dtype, int module);

  bool bound() const { return policy != nullptr && policy->modules != nullptr; }

  /// The bound module that one of a call's tensors belongs to, so far `found`.
  int find_module(int found, const at::Tensor& tensor) const {
    return found < 0 && bound() ? policy->modules->find(tensor) : found;
  }

  /// Tells the observer of the bound modules, if any.
  void observe(int module, const at::Tensor& output) const {
    if (module >= 0 && policy->modules->observer != nullptr && !recomputing) {
      policy->modules->observer->on_output(module, output);
    }
  }
};

ThreadAutocast& thread_autocast();

/// The dtype to which `promote` brings a call: float32 if one of its tensors is
/// float32, else the region's.
at::ScalarType promoted(
    at::ScalarType so_far, const at::Tensor& tensor, c10::DeviceType device);

/// Throws what an op with the rule `refuse` throws.
[[noreturn]] void refuse(const OpEntry& op);

} // namespace ampkit
