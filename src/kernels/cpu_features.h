#pragma once

namespace ampkit::kernels {

/// What this processor multiplies matrices in natively, as opposed to through
/// slow emulation. Read once; the environment variable ONEDNN_MAX_CPU_ISA and
/// ATEN_CPU_CAPABILITY, which hold LibTorch's own kernels back, count too.
struct CpuFeatures {
  bool bf16_matmul = false; // AVX-512 BF16 or AMX, or Arm's bf16 extension
  bool fp16_matmul = false; // AVX-512 FP16 or AMX-FP16
};

const CpuFeatures& cpu_features();

} // namespace ampkit::kernels
