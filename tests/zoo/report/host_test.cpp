#include "report/host.h"

#include <gtest/gtest.h>

namespace ampkit::zoo {
namespace {

TEST(HostTest, QuotaIsAFractionOfCores) {
  EXPECT_EQ(cpu_quota("150000 100000\n"), 1.5);
}

TEST(HostTest, NoQuotaAndUnknownTextGiveNone) {
  EXPECT_EQ(cpu_quota("max 100000\n"), std::nullopt);
  EXPECT_EQ(cpu_quota(""), std::nullopt);
  EXPECT_EQ(cpu_quota("100000"), std::nullopt);
  EXPECT_EQ(cpu_quota("100000 0"), std::nullopt);
  EXPECT_EQ(cpu_quota("1e5 100000"), std::nullopt);
}

TEST(HostTest, MemoryLimitIsReadUnlessThereIsNone) {
  EXPECT_EQ(memory_limit("1073741824\n"), 1073741824);
  EXPECT_EQ(memory_limit("max\n"), std::nullopt);
  EXPECT_EQ(memory_limit(""), std::nullopt);
}

TEST(HostTest, MeminfoEntriesAreInBytes) {
  const std::string text =
      "MemTotal:       24563152 kB\nMemFree:         1000 kB\n"
      "MemAvailable:   23000000 kB\n";
  EXPECT_EQ(meminfo_bytes(text, "MemTotal"), 24563152LL * 1024);
  EXPECT_EQ(meminfo_bytes(text, "MemAvailable"), 23000000LL * 1024);
  EXPECT_EQ(meminfo_bytes(text, "Mem"), 0); // a prefix is another key
  EXPECT_EQ(meminfo_bytes("", "MemTotal"), 0);
}

TEST(HostTest, ProcessorNameIsTheFirstModelName) {
  EXPECT_EQ(
      processor_name("processor\t: 0\nmodel\t\t: 2\nmodel name\t: A 9 v2\n"
                     "model name\t: B\n"),
      "A 9 v2");
  EXPECT_EQ(processor_name("CPU implementer : 0x41\n"), "");
}

TEST(HostTest, UnreadableFileIsEmpty) {
  EXPECT_EQ(read_host_file("/proc/no-such-file"), "");
  EXPECT_NE(read_host_file("/proc/self/status"), "");
}

} // namespace
} // namespace ampkit::zoo
