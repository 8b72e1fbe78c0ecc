#include "report/dtype_support.h"

#include <array>
#include <utility>

namespace ampkit::zoo {
namespace {

using c10::ScalarType;
using NamedCapability = std::pair<const char*, const char*>;

constexpr std::array<NamedCapability, 17> kInstructionSets{{
    {"sse4_2", "SSE4.2"},
    {"avx", "AVX"},
    {"avx2", "AVX2"},
    {"fma3", "FMA"},
    {"f16c", "F16C"},
    {"avx_vnni", "AVX-VNNI"},
    {"avx512_f", "AVX-512"},
    {"avx512_vnni", "AVX-512 VNNI"},
    {"avx512_bf16", "AVX-512 BF16"},
    {"avx512_fp16", "AVX-512 FP16"},
    {"amx_bf16", "AMX-BF16"},
    {"amx_fp16", "AMX-FP16"},
    {"amx_int8", "AMX-INT8"},
    {"neon", "Neon"},
    {"sve", "SVE"},
    {"bf16", "Arm BF16"},
    {"fp16_arith", "Arm FP16"},
}};

DtypeSupport cpu_16bit_dtype(
    const std::string& name, const Cpu16BitChoice& choice, bool has_units) {
  if (choice.through_fp32) {
    return {
        .name = name, .path = DtypePath::through_fp32, .reason = choice.reason};
  }
  if (has_units) {
    return {.name = name, .path = DtypePath::native, .reason = choice.reason};
  }
  return {
      .name = name,
      .path = DtypePath::emulated,
      .reason = "this processor has no " + name +
                " units, and LibTorch's own kernels were asked for by "
                "AMPKIT_CPU_16BIT or set_cpu_16bit()"};
}

} // namespace

std::vector<std::string> instruction_sets(const HasCapability& has) {
  std::vector<std::string> names;
  for (const auto& [capability, name] : kInstructionSets) {
    if (has(capability)) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::vector<DtypeSupport> cpu_dtypes(
    const HasCapability& has,
    const std::function<Cpu16BitChoice(ScalarType)>& choice) {
  const bool bf16_units = has("avx512_bf16") || has("amx_bf16") || has("bf16");
  const bool fp16_units = has("avx512_fp16") || has("amx_fp16");
  return {
      {.name = "fp32", .path = DtypePath::native, .reason = "always"},
      cpu_16bit_dtype("bf16", choice(ScalarType::BFloat16), bf16_units),
      cpu_16bit_dtype("fp16", choice(ScalarType::Half), fp16_units),
      {.name = "fp8",
       .path = DtypePath::emulated,
       .reason = "LibTorch converts fp8 in software on processors, and has no "
                 "fp8 convolution there"}};
}

std::vector<DtypeSupport> cuda_dtypes(int64_t major, int64_t minor) {
  const auto entry = [&](const std::string& name,
                         int64_t wanted,
                         DtypePath otherwise) -> DtypeSupport {
    const bool native = major * 10 + minor >= wanted;
    return {
        .name = name,
        .path = native ? DtypePath::native : otherwise,
        .reason = std::string(native ? "tensor cores" : "no tensor cores") +
                  " for " + name + " in compute capability " +
                  std::to_string(major) + "." + std::to_string(minor)};
  };
  return {
      {.name = "fp32", .path = DtypePath::native, .reason = "always"},
      entry("bf16", 80, DtypePath::emulated),
      entry("fp16", 70, DtypePath::emulated),
      entry("fp8", 89, DtypePath::missing)};
}

void correct_path(DtypeSupport& support, const DtypeSupport& fp32) {
  constexpr double kFarBelow = 0.3; // emulation is at 0.01 to 0.2
  const auto far_below = [](const auto& speed, const auto& reference) {
    return speed && reference && *speed < kFarBelow * *reference;
  };
  if (support.path == DtypePath::native &&
      far_below(support.matmul_gflops, fp32.matmul_gflops) &&
      far_below(support.conv_gflops, fp32.conv_gflops)) {
    support.path = DtypePath::emulated;
    support.reason +=
        ", but it measured far slower than fp32: LibTorch does "
        "not use the units here";
  }
}

} // namespace ampkit::zoo
