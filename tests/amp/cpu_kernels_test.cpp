#include <ampkit/amp/cpu_kernels.h>

#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

class CpuKernelsTest : public ::testing::Test {
 protected:
  void TearDown() override { set_cpu_16bit(Cpu16Bit::automatic); }
};

TEST_F(CpuKernelsTest, ModesSetAndReadBack) {
  for (const auto mode :
       {Cpu16Bit::native, Cpu16Bit::through_fp32, Cpu16Bit::automatic}) {
    set_cpu_16bit(mode);
    EXPECT_EQ(cpu_16bit_mode(), mode);
  }
}

TEST_F(CpuKernelsTest, QuerySaysHowAndWhy) {
  set_cpu_16bit(Cpu16Bit::through_fp32);
  EXPECT_TRUE(cpu_16bit(c10::kBFloat16).through_fp32);
  EXPECT_EQ(
      cpu_16bit(c10::kHalf).to_string(),
      "through FP32 (asked for by AMPKIT_CPU_16BIT or set_cpu_16bit())");
  set_cpu_16bit(Cpu16Bit::native);
  EXPECT_FALSE(cpu_16bit(c10::kHalf).through_fp32);
  set_cpu_16bit(Cpu16Bit::automatic);
  for (const auto dtype : {c10::kBFloat16, c10::kHalf}) {
    const auto text = cpu_16bit(dtype).to_string();
    EXPECT_TRUE(
        text.starts_with("native (this processor has ") ||
        text.starts_with("through FP32 ("))
        << text;
  }
}

TEST_F(CpuKernelsTest, ThroughFp32RoundsOnceAndCanBeSwitchedOff) {
  torch::manual_seed(1);
  const auto a = torch::randn({32, 64}).to(c10::kHalf);
  set_cpu_16bit(Cpu16Bit::through_fp32);
  install_cpu_16bit();
  EXPECT_TRUE(torch::mm(a, a.t()).equal(
      torch::mm(a.to(c10::kFloat), a.t().to(c10::kFloat)).to(c10::kHalf)));
}

TEST_F(CpuKernelsTest, OtherDtypesAndModesAreRefused) {
  EXPECT_ERROR(
      cpu_16bit(c10::kFloat),
      c10::ValueError,
      "cpu_16bit: dtype must be BFloat16 or Half, got Float");
  EXPECT_ERROR(
      set_cpu_16bit(static_cast<Cpu16Bit>(7)),
      c10::ValueError,
      "set_cpu_16bit: mode must be",
      "got 7");
}

} // namespace
} // namespace ampkit
