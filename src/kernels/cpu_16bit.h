#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace ampkit::kernels {

/// Who computes 16-bit matrix products, convolutions and attention on the CPU.
enum class Cpu16BitMode {
  automatic, // by dtype: the stock kernels where the processor has units for it
  native, // LibTorch's stock kernels
  through_fp32, // upcast -> LibTorch's FP32 kernel -> downcast
};

/// What the mode and the processor come to for one dtype.
enum class Cpu16BitRoute {
  stock,
  small_through_fp32, // stock, but for work too small to repay its start
  through_fp32,
};

/// Puts our 16-bit kernels in front of LibTorch's, unless none of them is
/// wanted in the present mode. Idempotent and thread-safe. Other threads must
/// not be inside a CPU operator during the first call, as for every
/// registration with the dispatcher.
///
/// Throws c10::ValueError if the environment variable AMPKIT_CPU_16BIT is
/// neither auto, native nor fp32.
void install_cpu_16bit();

/// Whether install_cpu_16bit() has put the kernels in place.
bool cpu_16bit_installed();

/// Changes the mode for all threads, and installs where the new mode wants it.
void set_cpu_16bit_mode(Cpu16BitMode mode);

/// AMPKIT_CPU_16BIT until set_cpu_16bit_mode() is called. Throws as
/// install_cpu_16bit() does.
Cpu16BitMode cpu_16bit_mode();

/// How CPU ops on `dtype` run in the present mode, once installed. `stock` for
/// every dtype but BFloat16 and Half.
Cpu16BitRoute cpu_16bit_route(c10::ScalarType dtype);

/// One phrase for people: what decided cpu_16bit_route(dtype).
std::string cpu_16bit_reason(c10::ScalarType dtype);

} // namespace ampkit::kernels
