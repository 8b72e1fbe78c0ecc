#include "amp/policy_kernels.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "amp/autocast_kernels.h"
#include "amp/op_lists.h"
#include "amp/thread_autocast.h"
#include "kernels/silence.h"

namespace ampkit {
namespace {

using torch::jit::Stack;

// The arguments of the call on top of `stack`.
std::span<c10::IValue> arguments(const c10::OperatorHandle& op, Stack& stack) {
  const size_t count = op.schema().arguments().size();
  return std::span(stack).last(count);
}

template <class Visit>
void for_each_tensor(std::span<c10::IValue> arguments, Visit visit) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      visit(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        visit(tensor);
      }
    }
  }
}

// One op on one device type, as the policy of the calling thread wants it.
class PolicyKernel : public c10::OperatorKernel {
 public:
  PolicyKernel(const OpEntry* entry, size_t slot, int dtype_argument)
      : entry_(entry), slot_(slot), dtype_argument_(dtype_argument) {}

  void operator()(
      const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    ThreadAutocast& state = thread_autocast();
    const auto region = at::autocast::get_autocast_dtype(device());
    OpTarget target{.rule = entry_->on[slot_].stock, .dtype = region};
    if (state.by_ampkit[slot_]) {
      target = inside_guard(state, op, *stack, region);
    }
    run(op, keys, *stack, target);
    if (target.module >= 0 && !stack->empty() && stack->back().isTensor()) {
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(key());
      state.observe(target.module, stack->back().toTensor());
    }
  }

 private:
  c10::DeviceType device() const { return slot_device(slot_); }
  c10::DispatchKey key() const {
    return at::autocast::get_autocast_dispatch_key_from_device_type(device());
  }

  OpTarget inside_guard(
      ThreadAutocast& state,
      const c10::OperatorHandle& op,
      Stack& stack,
      at::ScalarType region) const {
    int module = -1;
    if (state.bound()) {
      for_each_tensor(arguments(op, stack), [&](const at::Tensor& tensor) {
        module = state.find_module(module, tensor);
      });
    }
    return state.target(*entry_, slot_, region, module);
  }

  void run(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack& stack,
      const OpTarget& target) const {
    if (target.rule == OpRule::inputs && !entry_->on[slot_].listed) {
      // On no list of LibTorch's: what it is made of still gets autocast.
      op.redispatchBoxed(
          keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key()),
          &stack);
      return;
    }
    if (target.rule == OpRule::refuse) {
      refuse(*entry_);
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(key());
    cast_arguments(arguments(op, stack), target);
    op.callBoxed(stack);
  }

  void cast_arguments(
      std::span<c10::IValue> arguments, const OpTarget& target) const {
    if (target.rule == OpRule::inputs) {
      return;
    }
    auto dtype = target.dtype;
    if (target.rule == OpRule::float32) {
      if (widens_by_itself(arguments)) {
        return;
      }
      dtype = at::kFloat;
    } else if (target.rule == OpRule::promote) {
      for_each_tensor(arguments, [&](const at::Tensor& tensor) {
        dtype = promoted(dtype, tensor, device());
      });
    }
    for (c10::IValue& argument : arguments) {
      if (argument.isTensor()) {
        argument = cast(argument.toTensor(), dtype);
      } else if (argument.isTensorList()) {
        auto tensors = argument.toTensorVector();
        for (at::Tensor& tensor : tensors) {
          tensor = cast(tensor, dtype);
        }
        argument = std::move(tensors);
      }
    }
  }

  // Ops with a dtype argument (softmax, sum, ...) convert as they read, which
  // saves a copy; a dtype that the caller gave is his choice.
  bool widens_by_itself(std::span<c10::IValue> arguments) const {
    if (dtype_argument_ < 0) {
      return false;
    }
    c10::IValue& dtype = arguments[static_cast<size_t>(dtype_argument_)];
    const at::Tensor& input = arguments[0].toTensor();
    if (dtype.isNone() && at::autocast::is_eligible(input, device())) {
      dtype = at::kFloat;
    }
    return true;
  }

  at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype) const {
    if (!at::autocast::is_eligible(tensor, device()) ||
        tensor.scalar_type() == dtype) {
      return tensor;
    }
    ThreadAutocast& state = thread_autocast();
    return state.by_ampkit[slot_]
               ? state.cast(tensor, dtype)
               : at::autocast::cached_cast(dtype, tensor, device());
  }

  const OpEntry* entry_;
  size_t slot_;
  int dtype_argument_;
};

// Position of `ScalarType? dtype` beside an input tensor, else -1.
int dtype_argument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  if (arguments.empty() ||
      arguments[0].type()->kind() != c10::TypeKind::TensorType) {
    return -1;
  }
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i].name() == "dtype" &&
        arguments[i].type()->kind() == c10::TypeKind::OptionalType) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// The library that holds the kernels of one namespace and device. Never freed:
// taking kernels back at exit would race with whatever threads still run.
torch::Library& library_of(const std::string& name_space, size_t slot) {
  static auto* libraries =
      new std::map<std::pair<std::string, size_t>, torch::Library>;
  const auto key = at::autocast::get_autocast_dispatch_key_from_device_type(
      slot_device(slot));
  return libraries
      ->try_emplace(
          {name_space, slot},
          torch::Library::IMPL,
          name_space,
          key,
          __FILE__,
          __LINE__)
      .first->second;
}

std::mutex& install_mutex() {
  static std::mutex mutex;
  return mutex;
}

} // namespace

void install_policy_kernel(OpEntry& entry) {
  const std::lock_guard lock(install_mutex());
  const auto op = c10::Dispatcher::singleton().findOp(entry.name);
  TORCH_INTERNAL_ASSERT(op.has_value() && op->hasSchema());
  const Silence silence;
  for (size_t slot = 0; slot < kAutocastDevices; ++slot) {
    if (entry.on[slot].installed) {
      continue;
    }
    const auto colons = entry.name.name.find("::");
    library_of(entry.name.name.substr(0, colons), slot)
        .impl(
            toString(entry.name).substr(colons + 2).c_str(),
            torch::CppFunction::makeFromBoxedFunctor(
                std::make_unique<PolicyKernel>(
                    &entry, slot, dtype_argument(op->schema()))));
    entry.on[slot].installed = true;
  }
}

void install_policy_kernels() {
  // Guards come here at every step: all that was known last time is done.
  static std::atomic<size_t> done = 0;
  const size_t known = op_table::size();
  if (done.load(std::memory_order_acquire) == known) {
    return;
  }
  // First what is faster than a boxed kernel.
  install_autocast_kernels();
  for (OpEntry* entry : op_table::entries()) {
    install_policy_kernel(*entry);
  }
  done.store(known, std::memory_order_release);
}

void install_parameter_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string_view name : parameter_ops()) {
      for (const auto& op : op_table::match(name, "ampkit::ModulePolicy")) {
        op_table::entry(op);
      }
    }
  });
  install_policy_kernels();
}

} // namespace ampkit
