#include "amp/autocast_kernels.h"

#include <mutex>
#include <optional>
#include <type_traits>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "amp/thread_autocast.h"
#include "kernels/cpu_16bit.h"
#include "kernels/silence.h"

namespace ampkit {
namespace {

using c10::DeviceType;

// The casts of one call. Everything that is not a tensor passes through.
struct Caster {
  ThreadAutocast& state;
  DeviceType device;
  at::ScalarType dtype;

  at::Tensor operator()(const at::Tensor& tensor) const {
    if (!at::autocast::is_eligible(tensor, device) ||
        tensor.scalar_type() == dtype) {
      return tensor;
    }
    return state.cast(tensor, dtype);
  }
  std::optional<at::Tensor> operator()(
      const std::optional<at::Tensor>& tensor) const {
    return tensor.has_value() ? std::optional((*this)(*tensor)) : tensor;
  }
  std::vector<at::Tensor> operator()(const at::TensorList& tensors) const {
    std::vector<at::Tensor> result;
    result.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      result.push_back((*this)(tensor));
    }
    return result;
  }
  template <class T>
  T operator()(T other) const {
    return other;
  }
};

// Calls `visit` for each tensor of one argument.
template <class Visit>
void visit_tensors(const at::Tensor& tensor, Visit visit) {
  visit(tensor);
}
template <class Visit>
void visit_tensors(const std::optional<at::Tensor>& tensor, Visit visit) {
  if (tensor.has_value()) {
    visit(*tensor);
  }
}
template <class Visit>
void visit_tensors(const at::TensorList& tensors, Visit visit) {
  for (const at::Tensor& tensor : tensors) {
    visit(tensor);
  }
}
template <class T, class Visit>
void visit_tensors(const T& /*other*/, Visit /*visit*/) {}

// What a LinearOverride gives for a call, undefined if it leaves it alone or
// the op is no product with a weight.
template <auto* kOp>
struct Overridden {
  template <class... Args>
  static at::Tensor call(
      LinearOverride& /*linears*/,
      at::ScalarType /*dtype*/,
      const Args&... /*args*/) {
    return {};
  }
};
template <>
struct Overridden<&at::_ops::mm::call> {
  static at::Tensor call(
      LinearOverride& linears,
      at::ScalarType dtype,
      const at::Tensor& input,
      const at::Tensor& weight) {
    return linears.product(input, weight, std::nullopt, dtype);
  }
};
template <>
struct Overridden<&at::_ops::matmul::call> : Overridden<&at::_ops::mm::call> {};
template <>
struct Overridden<&at::_ops::linear::call> {
  static at::Tensor call(
      LinearOverride& linears,
      at::ScalarType dtype,
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias) {
    return weight.dim() == 2 ? linears.product(input, weight.t(), bias, dtype)
                             : at::Tensor();
  }
};
template <>
struct Overridden<&at::_ops::addmm::call> {
  static at::Tensor call(
      LinearOverride& linears,
      at::ScalarType dtype,
      const at::Tensor& bias,
      const at::Tensor& input,
      const at::Tensor& weight,
      const at::Scalar& beta,
      const at::Scalar& alpha) {
    const bool plain =
        bias.dim() == 1 && beta.toDouble() == 1.0 && alpha.toDouble() == 1.0;
    return plain ? linears.product(input, weight, bias, dtype) : at::Tensor();
  }
};

// What mkldnn_rnn_layer gives: output, hidden and cell state, workspace. oneDNN
// has an LSTM in 16 bits only for processors with units for it, and throws on
// others. It runs in FP32 there, and gives the dtype that it has elsewhere.
using Lstm = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Lstm rounded(const Lstm& result, at::ScalarType dtype) {
  const auto& [output, hidden, cell, workspace] = result;
  return {output.to(dtype), hidden.to(dtype), cell.to(dtype), workspace};
}

template <DeviceType kDevice, class Function, Function* kOp>
struct LowPrecision;

template <DeviceType kDevice, class Ret, class... Args, Ret (*kOp)(Args...)>
struct LowPrecision<kDevice, Ret(Args...), kOp> {
  static inline OpEntry* entry = nullptr; // set before the kernel is

  // The dispatcher takes a kernel by the signature of its op.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  static Ret call(Args... args) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(
        at::autocast::get_autocast_dispatch_key_from_device_type(kDevice));
    const auto dtype = at::autocast::get_autocast_dtype(kDevice);
    ThreadAutocast& state = thread_autocast();
    if (!state.of(kDevice)) {
      // No ampkit guard: what the replaced kernel did.
      return (*kOp)(at::autocast::cached_cast(dtype, args, kDevice)...);
    }
    if (state.policy != nullptr) {
      return with_policy(state, dtype, args...);
    }
    return cast_and_call(state, dtype, args...);
  }

 private:
  static Ret cast_and_call(
      ThreadAutocast& state, at::ScalarType dtype, const Args&... args) {
    if constexpr (kDevice == DeviceType::CPU && std::is_same_v<Ret, Lstm>) {
      if (kernels::cpu_16bit_route(dtype) ==
          kernels::Cpu16BitRoute::through_fp32) {
        const Caster cast{state, kDevice, at::kFloat};
        return rounded((*kOp)(cast(args)...), dtype);
      }
    }
    const Caster cast{state, kDevice, dtype};
    return (*kOp)(cast(args)...);
  }

  static Ret with_policy(
      ThreadAutocast& state, at::ScalarType region, const Args&... args) {
    int module = -1;
    if (state.bound()) {
      (visit_tensors(
           args,
           [&](const at::Tensor& tensor) {
             module = state.find_module(module, tensor);
           }),
       ...);
    }
    const OpTarget target =
        state.target(*entry, device_slot(kDevice), region, module);
    Ret result = run(state, target, args...);
    if constexpr (std::is_same_v<Ret, at::Tensor>) {
      state.observe(module, result);
    }
    return result;
  }

  static Ret run(
      ThreadAutocast& state, const OpTarget& target, const Args&... args) {
    if constexpr (std::is_same_v<Ret, at::Tensor>) {
      if (state.policy->linears != nullptr &&
          target.rule == OpRule::lower_precision) {
        auto result = Overridden<kOp>::call(
            *state.policy->linears, target.dtype, args...);
        if (result.defined()) {
          return result;
        }
      }
    }
    auto dtype = target.dtype;
    switch (target.rule) {
      case OpRule::inputs:
        return (*kOp)(args...);
      case OpRule::refuse:
        refuse(*entry);
      case OpRule::float32:
        dtype = at::kFloat;
        break;
      case OpRule::promote:
        (visit_tensors(
             args,
             [&](const at::Tensor& tensor) {
               dtype = promoted(dtype, tensor, kDevice);
             }),
         ...);
        break;
      case OpRule::lower_precision:
        break;
    }
    return cast_and_call(state, dtype, args...);
  }
};

// Replaces the kernel of one op, if this LibTorch has one to replace.
template <DeviceType kDevice, class Function, Function* kOp>
void replace(torch::Library& library, const char* name, const char* overload) {
  const auto key =
      at::autocast::get_autocast_dispatch_key_from_device_type(kDevice);
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (op.has_value() && op->hasKernelForDispatchKey(key)) {
    const std::string target =
        *overload == '\0' ? name : std::string(name) + "." + overload;
    using Kernel = LowPrecision<kDevice, Function, kOp>;
    Kernel::entry = &op_table::entry({name, overload});
    library.impl(target.c_str(), &Kernel::call);
    Kernel::entry->on[device_slot(kDevice)].installed = true;
  }
}

#define AMPKIT_REPLACE(device, op)                                    \
  replace<device, decltype(at::_ops::op::call), &at::_ops::op::call>( \
      library, at::_ops::op::name, at::_ops::op::overload_name)

// The lists are those of LibTorch's autocast_mode.cpp (CPU) and
// autocast_mode.h (CUDA); a test compares them with what LibTorch registers.
void replace_cpu(torch::Library& library) {
  constexpr auto kCpu = DeviceType::CPU;
  AMPKIT_REPLACE(kCpu, conv1d);
  AMPKIT_REPLACE(kCpu, conv1d_padding);
  AMPKIT_REPLACE(kCpu, conv2d);
  AMPKIT_REPLACE(kCpu, conv2d_padding);
  AMPKIT_REPLACE(kCpu, conv3d);
  AMPKIT_REPLACE(kCpu, conv3d_padding);
  AMPKIT_REPLACE(kCpu, bmm);
  AMPKIT_REPLACE(kCpu, mm);
  AMPKIT_REPLACE(kCpu, linalg_vecdot);
  AMPKIT_REPLACE(kCpu, baddbmm);
  AMPKIT_REPLACE(kCpu, addmm);
  AMPKIT_REPLACE(kCpu, _addmm_activation);
  AMPKIT_REPLACE(kCpu, addbmm);
  AMPKIT_REPLACE(kCpu, linear);
  AMPKIT_REPLACE(kCpu, _convolution_deprecated);
  AMPKIT_REPLACE(kCpu, matmul);
  AMPKIT_REPLACE(kCpu, conv_tbc);
  AMPKIT_REPLACE(kCpu, mkldnn_rnn_layer);
  AMPKIT_REPLACE(kCpu, conv_transpose1d);
  AMPKIT_REPLACE(kCpu, conv_transpose2d_input);
  AMPKIT_REPLACE(kCpu, conv_transpose3d_input);
  AMPKIT_REPLACE(kCpu, prelu);
  AMPKIT_REPLACE(kCpu, scaled_dot_product_attention);
  AMPKIT_REPLACE(kCpu, _native_multi_head_attention);
}

#define AMPKIT_OP_NAME_1(op) op
#define AMPKIT_OP_NAME_2(op, overload) op##_##overload
#define AMPKIT_PICK(_1, _2, picked, ...) picked
#define AMPKIT_OP_NAME(...) \
  AMPKIT_PICK(__VA_ARGS__, AMPKIT_OP_NAME_2, AMPKIT_OP_NAME_1)(__VA_ARGS__)
#define AMPKIT_REPLACE_EXPANDED(device, op) AMPKIT_REPLACE(device, op)
#define AMPKIT_REPLACE_CUDA(...) \
  AMPKIT_REPLACE_EXPANDED(kCuda, AMPKIT_OP_NAME(__VA_ARGS__));

void replace_cuda(torch::Library& library) {
  constexpr auto kCuda = DeviceType::CUDA;
  AT_FORALL_LOWER_PRECISION_FP(AMPKIT_REPLACE_CUDA)
}

} // namespace

void install_autocast_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    op_table::entries(); // LibTorch's lists, before anything of ours is there
    const Silence silence;
    // Never freed: taking kernels back at exit would race with whatever
    // threads still run.
    static auto* cpu = new torch::Library(
        torch::Library::IMPL,
        "aten",
        c10::DispatchKey::AutocastCPU,
        __FILE__,
        __LINE__);
    static auto* cuda = new torch::Library(
        torch::Library::IMPL,
        "aten",
        c10::DispatchKey::AutocastCUDA,
        __FILE__,
        __LINE__);
    replace_cpu(*cpu);
    replace_cuda(*cuda);
  });
}

} // namespace ampkit
