#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include <ampkit/export.h>

namespace ampkit {

/// Who computes matrix products, convolutions and attention of bf16 and fp16
/// tensors on the CPU.
///
/// LibTorch's own 16-bit kernels are fast where the processor has units for the
/// dtype, and 5 to 100 times slower than FP32 where it has not. There ampkit
/// puts kernels in front that convert the inputs to FP32, call LibTorch's FP32
/// kernel, and round its result once: same result dtype, FP32's accuracy inside
/// the op, FP32's speed, and what is kept for backward stays in 16 bits.
enum class Cpu16Bit {
  /// For each dtype, native if the processor has units for it; there only
  /// products of at most 2^18 multiply-adds, and the backward of attention over
  /// sequences below 256, which take less time than LibTorch needs to start
  /// them in 16 bits, run through FP32.
  automatic,
  native, ///< LibTorch's own kernels
  through_fp32, ///< convert, compute in FP32, round
};

/// How one dtype is computed.
struct AMPKIT_API Cpu16BitChoice {
  /// Whether matrix products of the dtype run through FP32.
  bool through_fp32 = false;
  /// What decided, e.g. "this processor has AVX-512 BF16".
  std::string reason;

  /// E.g. "native (this processor has AVX-512 BF16)".
  std::string to_string() const;
};

/// Puts the kernels in place if the present mode wants any; later calls do
/// nothing. The first Autocast on the CPU does this by itself: call it in a
/// program that computes with 16-bit parameters and no Autocast. A process that
/// does neither keeps LibTorch's kernels. FP32, FP64, integer and complex
/// inputs, other devices and sparse or nested tensors always keep them.
///
/// Thread-safe towards itself, but the first call changes the dispatcher's
/// table: make it before other threads compute.
///
/// Throws c10::ValueError if the environment variable AMPKIT_CPU_16BIT is set
/// to anything but auto, native or fp32.
AMPKIT_API void install_cpu_16bit();

/// Changes the mode of the whole process, from the next op on, and installs
/// the kernels if it wants any. The mode is that of AMPKIT_CPU_16BIT until the
/// first call, `automatic` if that is not set.
AMPKIT_API void set_cpu_16bit(Cpu16Bit mode);

/// The present mode. Throws as install_cpu_16bit() does.
AMPKIT_API Cpu16Bit cpu_16bit_mode();

/// How `dtype`, kBFloat16 or kHalf, is computed on this processor in the
/// present mode, once the kernels are installed. Changes nothing.
///
/// Throws c10::ValueError for every other dtype.
AMPKIT_API Cpu16BitChoice cpu_16bit(c10::ScalarType dtype);

} // namespace ampkit
