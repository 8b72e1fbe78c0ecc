#include "kernels/cpu_features.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/cpu/Utils.h>

namespace ampkit::kernels {
namespace {

/// Limits of oneDNN below its BF16 kernels; the next one is below its FP16
/// kernels only. oneDNN takes values that it does not know for no limit.
constexpr std::array<std::string_view, 7> kBelowBf16{
    "sse41",
    "avx",
    "avx2",
    "avx2_vnni",
    "avx2_vnni_2",
    "avx512_core",
    "avx512_core_vnni"};
constexpr std::string_view kBf16ButNotFp16 = "avx512_core_bf16";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return text;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// `unit`: the unit's name, empty where the processor has none.
std::string reason(
    const std::string& unit,
    const std::string& wanted_units,
    bool held_back,
    const std::string& max_isa) {
  if (unit.empty()) {
    return "this processor has no " + wanted_units;
  }
  if (held_back) {
    return "ONEDNN_MAX_CPU_ISA=" + max_isa + " keeps LibTorch from using " +
           unit;
  }
  return "this processor has " + unit;
}

} // namespace

CpuFeatures decide_cpu_features(
    const std::function<bool(const std::string&)>& has,
    const std::string& max_isa) {
  const auto limit = lower(max_isa);
  const bool below_bf16 =
      std::find(kBelowBf16.begin(), kBelowBf16.end(), limit) !=
      kBelowBf16.end();
  const bool below_fp16 = below_bf16 || limit == kBf16ButNotFp16;
  const std::string bf16_unit = has("amx_bf16")      ? "AMX-BF16"
                                : has("avx512_bf16") ? "AVX-512 BF16"
                                : has("bf16")        ? "Arm BF16"
                                                     : "";
  const std::string fp16_unit = has("amx_fp16")      ? "AMX-FP16"
                                : has("avx512_fp16") ? "AVX-512 FP16"
                                                     : "";
  return {
      .bf16_matmul = !bf16_unit.empty() && !below_bf16,
      .fp16_matmul = !fp16_unit.empty() && !below_fp16,
      .bf16_reason = reason(
          bf16_unit, "AVX-512 BF16, AMX or Arm BF16", below_bf16, max_isa),
      .fp16_reason =
          reason(fp16_unit, "AVX-512 FP16 or AMX-FP16", below_fp16, max_isa)};
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = [] {
    const auto capabilities = at::cpu::get_cpu_capabilities();
    const auto has = [&](const std::string& name) {
      const auto found = capabilities.find(name);
      // Without oneDNN nothing in LibTorch uses the units.
      return at::globalContext().hasMKLDNN() && found != capabilities.end() &&
             found->second.isBool() && found->second.toBool();
    };
    // oneDNN reads its older name too.
    auto max_isa = environment("ONEDNN_MAX_CPU_ISA");
    if (max_isa.empty()) {
      max_isa = environment("DNNL_MAX_CPU_ISA");
    }
    return decide_cpu_features(has, max_isa);
  }();
  return features;
}

} // namespace ampkit::kernels
