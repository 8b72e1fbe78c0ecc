#include "kernels/cpu_16bit.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include <c10/util/Exception.h>
#include <torch/library.h>

#include "kernels/cpu_16bit_ops.h"
#include "kernels/cpu_features.h"
#include "kernels/silence.h"

namespace ampkit::kernels {
namespace {

using c10::ScalarType;

Cpu16BitMode mode_from_environment() {
  const char* value = std::getenv("AMPKIT_CPU_16BIT");
  const std::string_view name = value == nullptr ? "auto" : value;
  TORCH_CHECK_VALUE(
      name == "auto" || name == "native" || name == "fp32",
      "AMPKIT_CPU_16BIT must be auto, native or fp32, got '",
      std::string(name),
      "'");
  return name == "auto"     ? Cpu16BitMode::automatic
         : name == "native" ? Cpu16BitMode::native
                            : Cpu16BitMode::through_fp32;
}

Cpu16BitRoute route(Cpu16BitMode mode, bool has_unit) {
  switch (mode) {
    case Cpu16BitMode::native:
      return Cpu16BitRoute::stock;
    case Cpu16BitMode::through_fp32:
      return Cpu16BitRoute::through_fp32;
    case Cpu16BitMode::automatic:
      break;
  }
  return has_unit ? Cpu16BitRoute::small_through_fp32
                  : Cpu16BitRoute::through_fp32;
}

/// Process-wide, as the dispatcher's table is that the kernels live in.
struct State {
  std::atomic<Cpu16BitMode> mode;
  std::atomic<Cpu16BitRoute> bf16;
  std::atomic<Cpu16BitRoute> half;
  std::atomic<bool> installed = false;
  std::mutex install_mutex;

  explicit State(Cpu16BitMode initial) { set_mode(initial); }

  void set_mode(Cpu16BitMode value) {
    mode = value;
    bf16 = route(value, cpu_features().bf16_matmul);
    half = route(value, cpu_features().fp16_matmul);
  }
};

State& state() {
  static State instance(mode_from_environment());
  return instance;
}

void register_kernels() {
  const Silence silence;
  // Otherwise the dispatcher's once-a-process warning would be spent here, and
  // an override by somebody else would go unnoticed.
  const c10::WarningUtils::WarnAlways not_once(true);
  // Never destroyed: other threads may still compute while the process ends.
  static auto* const library = new torch::Library(
      torch::Library::IMPL,
      "aten",
      c10::DispatchKey::CPU,
      __FILE__,
      static_cast<uint32_t>(__LINE__));
  register_matmul_16bit(*library);
  register_convolution_16bit(*library);
  register_attention_16bit(*library);
  register_gelu_16bit(*library);
}

} // namespace

void install_cpu_16bit() {
  auto& current = state();
  if (current.installed || current.mode == Cpu16BitMode::native) {
    return;
  }
  const std::lock_guard lock(current.install_mutex);
  if (!current.installed) {
    register_kernels();
    current.installed = true;
  }
}

bool cpu_16bit_installed() {
  return state().installed;
}

void set_cpu_16bit_mode(Cpu16BitMode mode) {
  state().set_mode(mode);
  Workspace::release();
  install_cpu_16bit();
}

Cpu16BitMode cpu_16bit_mode() {
  return state().mode;
}

Cpu16BitRoute cpu_16bit_route(ScalarType dtype) {
  // Asked by every CPU matrix product in the process: relaxed, no lock.
  switch (dtype) {
    case ScalarType::BFloat16:
      return state().bf16.load(std::memory_order_relaxed);
    case ScalarType::Half:
      return state().half.load(std::memory_order_relaxed);
    default:
      return Cpu16BitRoute::stock;
  }
}

std::string cpu_16bit_reason(ScalarType dtype) {
  if (cpu_16bit_mode() != Cpu16BitMode::automatic) {
    return "asked for by AMPKIT_CPU_16BIT or set_cpu_16bit()";
  }
  return dtype == ScalarType::BFloat16 ? cpu_features().bf16_reason
                                       : cpu_features().fp16_reason;
}

} // namespace ampkit::kernels
