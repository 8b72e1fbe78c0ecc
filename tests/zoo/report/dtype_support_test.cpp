#include "report/dtype_support.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ampkit::zoo {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

HasCapability processor_with(std::set<std::string> capabilities) {
  return [all = std::move(capabilities)](const std::string& name) {
    return all.contains(name);
  };
}

Cpu16BitChoice through_fp32(c10::ScalarType) {
  return {.through_fp32 = true, .reason = "no units"};
}

Cpu16BitChoice native(c10::ScalarType) {
  return {.through_fp32 = false, .reason = "chosen"};
}

TEST(DtypeSupportTest, ProcessorWithoutUnitsGoesThroughFp32) {
  const auto dtypes = cpu_dtypes(processor_with({"avx2"}), through_fp32);
  ASSERT_EQ(dtypes.size(), 4);
  EXPECT_EQ(dtypes[0].path, DtypePath::native);
  EXPECT_EQ(dtypes[1].path, DtypePath::through_fp32);
  EXPECT_EQ(dtypes[1].reason, "no units");
  EXPECT_EQ(dtypes[2].path, DtypePath::through_fp32);
  EXPECT_EQ(dtypes[3].name, "fp8");
  EXPECT_EQ(dtypes[3].path, DtypePath::emulated);
}

TEST(DtypeSupportTest, ProcessorWithBf16UnitsIsNativeInBf16Only) {
  const auto dtypes = cpu_dtypes(
      processor_with({"avx2", "avx512_bf16"}), [](c10::ScalarType dtype) {
        return dtype == c10::ScalarType::Half ? through_fp32(dtype)
                                              : native(dtype);
      });
  EXPECT_EQ(dtypes[1].path, DtypePath::native);
  EXPECT_EQ(dtypes[1].reason, "chosen");
  EXPECT_EQ(dtypes[2].path, DtypePath::through_fp32);
}

TEST(DtypeSupportTest, StockKernelsWithoutUnitsAreEmulatedNotNative) {
  // AMPKIT_CPU_16BIT=native on an AVX2 processor.
  const auto dtypes = cpu_dtypes(processor_with({"avx2"}), native);
  EXPECT_EQ(dtypes[1].path, DtypePath::emulated);
  EXPECT_THAT(dtypes[1].reason, HasSubstr("no bf16 units"));
  EXPECT_EQ(dtypes[2].path, DtypePath::emulated);
}

TEST(DtypeSupportTest, SlowNativeIsCorrectedToEmulated) {
  const DtypeSupport fp32{
      .name = "fp32", .matmul_gflops = 100.0, .conv_gflops = 80.0};
  DtypeSupport held_back{
      .name = "bf16",
      .path = DtypePath::native,
      .reason = "AMX",
      .matmul_gflops = 0.8,
      .conv_gflops = 9.0};
  correct_path(held_back, fp32);
  EXPECT_EQ(held_back.path, DtypePath::emulated);
  EXPECT_THAT(held_back.reason, HasSubstr("far slower than fp32"));
}

TEST(DtypeSupportTest, OneSlowOpOrNoMeasurementCorrectsNothing) {
  const DtypeSupport fp32{
      .name = "fp32", .matmul_gflops = 100.0, .conv_gflops = 80.0};
  DtypeSupport noisy{
      .path = DtypePath::native, .matmul_gflops = 1.0, .conv_gflops = 90.0};
  DtypeSupport unmeasured{.path = DtypePath::native};
  correct_path(noisy, fp32);
  correct_path(unmeasured, fp32);
  EXPECT_EQ(noisy.path, DtypePath::native);
  EXPECT_EQ(unmeasured.path, DtypePath::native);
}

TEST(DtypeSupportTest, CudaDtypesFollowTheComputeCapability) {
  const auto paths = [](int64_t major, int64_t minor) {
    std::vector<DtypePath> result;
    for (const auto& support : cuda_dtypes(major, minor)) {
      result.push_back(support.path);
    }
    return result;
  };
  const auto native = DtypePath::native;
  const auto emulated = DtypePath::emulated;
  const auto missing = DtypePath::missing;
  EXPECT_THAT(paths(6, 1), ElementsAre(native, emulated, emulated, missing));
  EXPECT_THAT(paths(7, 5), ElementsAre(native, emulated, native, missing));
  EXPECT_THAT(paths(8, 0), ElementsAre(native, native, native, missing));
  EXPECT_THAT(paths(9, 0), ElementsAre(native, native, native, native));
}

TEST(DtypeSupportTest, InstructionSetsAreNamedAsPeopleNameThem) {
  const auto names = instruction_sets(processor_with({"avx2", "amx_bf16"}));
  EXPECT_THAT(names, ElementsAre("AVX2", "AMX-BF16"));
  EXPECT_THAT(names, Not(Contains("AVX-512")));
}

TEST(DtypeSupportTest, MeasuringFillsSpeedsAndRestoresTheMode) {
  set_cpu_16bit(Cpu16Bit::through_fp32);
  auto dtypes = cpu_dtypes(processor_with({}), through_fp32);
  measure(dtypes, c10::DeviceType::CPU);
  EXPECT_EQ(cpu_16bit_mode(), Cpu16Bit::through_fp32);
  set_cpu_16bit(Cpu16Bit::automatic);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(dtypes[i].matmul_gflops.value_or(0), 0) << dtypes[i].name;
    EXPECT_GT(dtypes[i].conv_gflops.value_or(0), 0) << dtypes[i].name;
  }
  EXPECT_GT(dtypes[1].stock_matmul_gflops.value_or(0), 0);
  EXPECT_EQ(dtypes[0].stock_matmul_gflops, std::nullopt);
  // LibTorch has no fp8 convolution on processors.
  EXPECT_EQ(dtypes[3].conv_gflops, std::nullopt);
}

} // namespace
} // namespace ampkit::zoo
