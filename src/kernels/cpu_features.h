#pragma once

#include <functional>
#include <string>

namespace ampkit::kernels {

/// Which 16-bit dtypes LibTorch multiplies matrices of with units made for
/// them, rather than in emulation that is slower than FP32.
struct CpuFeatures {
  bool bf16_matmul = false; // AVX-512 BF16 or AMX-BF16, or Arm's BF16
  bool fp16_matmul = false; // AVX-512 FP16 or AMX-FP16
  std::string bf16_reason; // what decided, for people
  std::string fp16_reason;
};

/// What this process has. The environment variable ONEDNN_MAX_CPU_ISA counts,
/// because it keeps oneDNN, which drives the units for LibTorch, from using
/// them; ATEN_CPU_CAPABILITY does not reach oneDNN. Read once, at the first
/// call.
const CpuFeatures& cpu_features();

/// The decision behind cpu_features(). `has`: whether the processor has the
/// capability of that name (as in torch.cpu.get_capabilities()). `max_isa`: the
/// value of ONEDNN_MAX_CPU_ISA, empty where it is not set.
CpuFeatures decide_cpu_features(
    const std::function<bool(const std::string&)>& has,
    const std::string& max_isa);

} // namespace ampkit::kernels
