#include "amp/autocast_kernels.h"

#include <mutex>
#include <optional>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace ampkit {

ThreadAutocast& thread_autocast() {
  thread_local ThreadAutocast state;
  return state;
}

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
    return state.cache_enabled ? state.cache.cast(tensor, dtype)
                               : tensor.to(dtype);
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

template <DeviceType kDevice, class Function, Function* kOp>
struct LowPrecision;

template <DeviceType kDevice, class Ret, class... Args, Ret (*kOp)(Args...)>
struct LowPrecision<kDevice, Ret(Args...), kOp> {
  static Ret call(Args... args) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(
        at::autocast::get_autocast_dispatch_key_from_device_type(kDevice));
    const auto dtype = at::autocast::get_autocast_dtype(kDevice);
    ThreadAutocast& state = thread_autocast();
    if (state.of(kDevice)) {
      const Caster cast{state, kDevice, dtype};
      return (*kOp)(cast(args)...);
    }
    // No ampkit guard: what the replaced kernel did.
    return (*kOp)(at::autocast::cached_cast(dtype, args, kDevice)...);
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
    library.impl(target.c_str(), &LowPrecision<kDevice, Function, kOp>::call);
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

// LibTorch warns of every replaced kernel, which is just what is meant here.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

} // namespace

void install_autocast_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    Silence silence;
    c10::WarningUtils::WarningHandlerGuard guard(&silence);
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
