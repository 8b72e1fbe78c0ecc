#include <ampkit/amp/cpu_kernels.h>

#include <c10/util/Exception.h>

#include "kernels/cpu_16bit.h"

namespace ampkit {

std::string Cpu16BitChoice::to_string() const {
  return (through_fp32 ? "through FP32 (" : "native (") + reason + ")";
}

void install_cpu_16bit() {
  kernels::install_cpu_16bit();
}

void set_cpu_16bit(Cpu16Bit mode) {
  switch (mode) {
    case Cpu16Bit::automatic:
      return kernels::set_cpu_16bit_mode(kernels::Cpu16BitMode::automatic);
    case Cpu16Bit::native:
      return kernels::set_cpu_16bit_mode(kernels::Cpu16BitMode::native);
    case Cpu16Bit::through_fp32:
      return kernels::set_cpu_16bit_mode(kernels::Cpu16BitMode::through_fp32);
  }
  TORCH_CHECK_VALUE(
      false,
      "set_cpu_16bit: mode must be automatic, native or through_fp32, got ",
      static_cast<int>(mode));
}

Cpu16Bit cpu_16bit_mode() {
  switch (kernels::cpu_16bit_mode()) {
    case kernels::Cpu16BitMode::native:
      return Cpu16Bit::native;
    case kernels::Cpu16BitMode::through_fp32:
      return Cpu16Bit::through_fp32;
    case kernels::Cpu16BitMode::automatic:
      break;
  }
  return Cpu16Bit::automatic;
}

Cpu16BitChoice cpu_16bit(c10::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      dtype == c10::ScalarType::BFloat16 || dtype == c10::ScalarType::Half,
      "cpu_16bit: dtype must be BFloat16 or Half, got ",
      dtype);
  return {
      .through_fp32 = kernels::cpu_16bit_route(dtype) ==
                      kernels::Cpu16BitRoute::through_fp32,
      .reason = kernels::cpu_16bit_reason(dtype)};
}

} // namespace ampkit
