#include "kernels/cpu_features.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace ampkit::kernels {
namespace {

CpuFeatures decide(
    const std::set<std::string>& capabilities, const std::string& max_isa) {
  return decide_cpu_features(
      [&](const std::string& name) { return capabilities.contains(name); },
      max_isa);
}

const std::set<std::string> kHaswell{"avx2", "f16c", "fma3"};
const std::set<std::string> kZen5{"avx2", "avx512_f", "avx512_bf16"};
const std::set<std::string> kSapphireRapids{
    "avx512_f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"};

TEST(CpuFeaturesTest, UnitsDecideForEachDtype) {
  EXPECT_FALSE(decide(kHaswell, "").bf16_matmul);
  EXPECT_FALSE(decide(kHaswell, "").fp16_matmul);
  EXPECT_TRUE(decide(kZen5, "").bf16_matmul);
  EXPECT_FALSE(decide(kZen5, "").fp16_matmul);
  EXPECT_TRUE(decide(kSapphireRapids, "").bf16_matmul);
  EXPECT_TRUE(decide(kSapphireRapids, "").fp16_matmul);
}

TEST(CpuFeaturesTest, OneDnnLimitsBelowAUnitSwitchItOff) {
  for (const char* limit : {"AVX2", "avx2_vnni_2", "AVX512_CORE_VNNI"}) {
    EXPECT_FALSE(decide(kSapphireRapids, limit).bf16_matmul) << limit;
    EXPECT_FALSE(decide(kSapphireRapids, limit).fp16_matmul) << limit;
  }
  EXPECT_TRUE(decide(kSapphireRapids, "AVX512_CORE_BF16").bf16_matmul);
  EXPECT_FALSE(decide(kSapphireRapids, "AVX512_CORE_BF16").fp16_matmul);
  for (const char* limit : {"AVX512_CORE_FP16", "DEFAULT", "NONSENSE"}) {
    EXPECT_TRUE(decide(kSapphireRapids, limit).bf16_matmul) << limit;
    EXPECT_TRUE(decide(kSapphireRapids, limit).fp16_matmul) << limit;
  }
}

TEST(CpuFeaturesTest, ReasonsNameTheUnitOrTheLimit) {
  EXPECT_EQ(decide(kZen5, "").bf16_reason, "this processor has AVX-512 BF16");
  EXPECT_EQ(
      decide(kZen5, "").fp16_reason,
      "this processor has no AVX-512 FP16 or AMX-FP16");
  EXPECT_EQ(
      decide(kSapphireRapids, "AVX2").bf16_reason,
      "ONEDNN_MAX_CPU_ISA=AVX2 keeps LibTorch from using AMX-BF16");
}

} // namespace
} // namespace ampkit::kernels
