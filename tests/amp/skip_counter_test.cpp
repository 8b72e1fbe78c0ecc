#include "amp/skip_counter.h"

#include <torch/torch.h>

#include "amp/host_value.h"

namespace ampkit {
namespace {

Flag on_device(bool value) {
  const TreatCpuAsDevice as_device;
  return Flag(torch::tensor(value));
}

TEST(SkipCounterTest, CountsAreTheSameOnTheHostAndOnADevice) {
  SkipCounter host;
  SkipCounter device;
  const std::vector<std::pair<bool, bool>> steps{
      {true, false}, {false, false}, {true, true}, {true, true}, {true, false}};
  for (const auto& [skipped, fault] : steps) {
    host.count_step(Flag(skipped), Flag(fault));
    host.count_iteration(Flag(skipped), Flag(fault));
    device.count_step(on_device(skipped), on_device(fault));
    device.count_iteration(on_device(skipped), on_device(fault));
  }
  for (const auto& counts : {host.read(), device.read()}) {
    EXPECT_EQ(counts.steps, 5);
    EXPECT_EQ(counts.skipped, 4);
    EXPECT_EQ(counts.faults, 2);
    EXPECT_EQ(counts.skips_in_a_row, 3);
    EXPECT_EQ(counts.faults_in_a_row, 0);
  }
}

TEST(SkipCounterTest, HostCountsGoOnOnTheDevice) {
  SkipCounter counter;
  counter.load({.steps = 7, .skipped = 3, .faults = 2, .skips_in_a_row = 1});
  counter.count_step(on_device(true), Flag(false));
  counter.count_iteration(on_device(true), Flag(false));
  EXPECT_EQ(counter.read().steps, 8);
  EXPECT_EQ(counter.read().skipped, 4);
  EXPECT_EQ(counter.read().faults, 2);
  EXPECT_EQ(counter.read().skips_in_a_row, 2);
}

TEST(SkipCounterTest, PeekIsImmediateOnTheHostAndLateOnADevice) {
  SkipCounter host;
  host.count_iteration(Flag(true), Flag(false));
  EXPECT_EQ(host.peek().counts.value().skips_in_a_row, 1);
  EXPECT_FALSE(host.peek().sent);

  SkipCounter device;
  device.count_iteration(on_device(true), Flag(false));
  const auto first = device.peek();
  EXPECT_FALSE(first.counts.has_value());
  EXPECT_TRUE(first.sent);
  device.count_iteration(on_device(true), Flag(false));
  const auto second = device.peek();
  EXPECT_EQ(second.counts.value().skips_in_a_row, 1); // of the first
  EXPECT_TRUE(second.sent);
  EXPECT_EQ(device.peek().counts.value().skips_in_a_row, 2);
}

} // namespace
} // namespace ampkit
