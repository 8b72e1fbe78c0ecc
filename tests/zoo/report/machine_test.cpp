#include <ampkit/zoo/report/machine.h>

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>
#include <torch/version.h>
#include <nlohmann/json.hpp>

#include <ampkit/amp/cpu_kernels.h>
#include <ampkit/version.h>

namespace ampkit::zoo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(MachineTest, CollectsWhatThisProcessRunsOn) {
  const auto machine = collect_machine();
  EXPECT_EQ(machine.ampkit_version, AMPKIT_VERSION);
  EXPECT_EQ(machine.libtorch_version, TORCH_VERSION);
  EXPECT_GT(machine.logical_cores, 0);
  EXPECT_GT(machine.usable_cores, 0);
  EXPECT_LE(machine.usable_cores, static_cast<double>(machine.logical_cores));
  EXPECT_GT(machine.memory_bytes, machine.memory_available_bytes);
  EXPECT_EQ(machine.threads, at::get_num_threads());
  ASSERT_EQ(machine.dtypes.size(), 4);
}

TEST(MachineTest, PathsAreThoseOfTheKernels) {
  const auto machine = collect_machine();
  EXPECT_EQ(
      machine.dtypes[1].path == DtypePath::through_fp32,
      cpu_16bit(c10::ScalarType::BFloat16).through_fp32);
  EXPECT_EQ(
      machine.dtypes[2].path == DtypePath::through_fp32,
      cpu_16bit(c10::ScalarType::Half).through_fp32);
}

TEST(MachineTest, AskingMeasuresNothingUnlessTold) {
  for (const auto& support : collect_machine().dtypes) {
    EXPECT_FALSE(support.matmul_gflops.has_value());
    EXPECT_FALSE(support.stock_conv_gflops.has_value());
  }
}

TEST(MachineTest, MeasuringLeavesTheRandomNumbersAlone) {
  torch::manual_seed(1);
  const auto expected = at::rand({4});
  torch::manual_seed(1);
  collect_machine({.measure = true});
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

Machine example() {
  return {
      .ampkit_version = "0.1.0",
      .libtorch_version = "2.13.0",
      .libraries = {"oneDNN 3.1"},
      .processor = "Example 9000",
      .logical_cores = 8,
      .usable_cores = 1.5,
      .memory_bytes = 8LL << 30,
      .threads = 2,
      .dtypes =
          {{.name = "fp32", .path = DtypePath::native, .reason = "always"},
           {.name = "fp16",
            .path = DtypePath::through_fp32,
            .reason = "no units",
            .matmul_gflops = 96.4,
            .stock_matmul_gflops = 0.8}},
      .missing = {{"Chart.js", "no charts", "apt-get install x"}}};
}

TEST(MachineTest, ShortTextIsTwoToFiveLines) {
  auto machine = example();
  const auto text = machine.to_text_short();
  EXPECT_EQ(lines(text), 3) << text;
  EXPECT_THAT(text, HasSubstr("fp16 through FP32 (no units)"));
  EXPECT_THAT(text, HasSubstr("missing: Chart.js"));
  machine.missing.clear();
  EXPECT_EQ(lines(machine.to_text_short()), 2);
  machine.cuda_devices.resize(8, {.name = "GPU"});
  EXPECT_EQ(lines(machine.to_text_short()), 3);
}

TEST(MachineTest, LongTextSaysSpeedsLimitsAndRemedies) {
  const auto text = example().to_text();
  EXPECT_THAT(text, HasSubstr("may use 1.5"));
  EXPECT_THAT(text, HasSubstr("through FP32                 96"));
  EXPECT_THAT(text, HasSubstr("LibTorch's own            0.8"));
  EXPECT_THAT(text, HasSubstr("apt-get install x"));
  EXPECT_THAT(text, Not(HasSubstr("not measured")));
}

TEST(MachineTest, BusyMachineIsSaidBesideItsSpeeds) {
  auto machine = example();
  EXPECT_THAT(machine.to_text(), Not(HasSubstr("load average")));
  machine.load_average = 7.5;
  EXPECT_THAT(machine.to_text(), HasSubstr("load average 7.5 on 1.5 cores"));
}

TEST(MachineTest, JsonHoldsEveryFieldAndNullForUnmeasured) {
  const auto json = nlohmann::json::parse(example().to_json());
  EXPECT_EQ(json["processor"], "Example 9000");
  EXPECT_EQ(json["usable_cores"], 1.5);
  EXPECT_EQ(json["dtypes"][1]["path"], "through FP32");
  EXPECT_EQ(json["dtypes"][1]["matmul_gflops"], 96.4);
  EXPECT_TRUE(json["dtypes"][1]["conv_gflops"].is_null());
  EXPECT_EQ(json["missing"][0]["remedy"], "apt-get install x");
}

TEST(MachineTest, NameThatIsNoUtf8StillGivesJson) {
  auto machine = example();
  machine.processor = "caf\xE9";
  const auto json = nlohmann::json::parse(machine.to_json());
  EXPECT_EQ(json["processor"], "caf\xEF\xBF\xBD");
}

} // namespace
} // namespace ampkit::zoo
