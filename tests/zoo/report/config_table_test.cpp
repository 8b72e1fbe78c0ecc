#include "report/config_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/machine_table.h"

namespace ampkit::zoo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfigTableTest, TablesKeepTheFilesOrderAndValues) {
  const auto table = config_table(
      "[train]\nlr = 0.004\nbetas = [0.9, 0.999]\n[data]\nflip = true\n"
      "path = \"a<b\"\n");
  EXPECT_THAT(table.html, HasSubstr("lr</th><td>0.004</td>"));
  EXPECT_THAT(table.html, HasSubstr("betas</th><td>[0.9, 0.999]</td>"));
  EXPECT_THAT(table.html, HasSubstr("flip</th><td>true</td>"));
  EXPECT_THAT(table.html, HasSubstr("path</th><td>a&lt;b</td>"));
  EXPECT_LT(table.html.find("train"), table.html.find("data"));
}

TEST(ConfigTableTest, PrecisionAndSamplesAStepAreFound) {
  const auto table = config_table(
      "[precision]\npreset = \"bf16-mixed\"\n[data]\nbatch_size = 64\n"
      "[train]\naccumulate = 4\n");
  EXPECT_EQ(table.precision, "bf16-mixed");
  EXPECT_EQ(table.samples_per_step, 256);
  EXPECT_EQ(config_table("a = 1").precision, "");
  EXPECT_EQ(config_table("a = 1").samples_per_step, 0);
}

TEST(ConfigTableTest, TextThatIsNoTomlIsShownEscaped) {
  const auto table = config_table("<not> toml");
  EXPECT_EQ(table.html, "<pre>&lt;not&gt; toml</pre>\n");
}

TEST(MachineTableTest, KnownFieldsAreShownAndMissingOnesLeftOut) {
  const auto html = machine_table(
      R"({"processor": "A <9>", "memory_bytes": 8589934592, "dtypes": [
          {"name": "bf16", "path": "native", "reason": "AMX",
           "matmul_gflops": 1234.5, "conv_gflops": null}]})");
  EXPECT_THAT(html, HasSubstr("A &lt;9&gt;"));
  EXPECT_THAT(html, HasSubstr("8.0 GiB"));
  EXPECT_THAT(
      html, HasSubstr("native: AMX (GFLOP/s: matmul 1,234, convolution -)"));
  EXPECT_THAT(html, Not(HasSubstr("LibTorch")));
}

TEST(MachineTableTest, FileThatCannotBeReadIsSaid) {
  EXPECT_THAT(machine_table("{\"torn"), HasSubstr("cannot be read"));
  EXPECT_THAT(machine_table("[1]"), HasSubstr("cannot be read"));
  EXPECT_THAT(
      machine_table(R"({"dtypes": 3, "cuda_devices": [4]})"),
      Not(HasSubstr("cannot be read")));
}

} // namespace
} // namespace ampkit::zoo
