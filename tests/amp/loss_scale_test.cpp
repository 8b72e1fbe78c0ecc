#include "amp/loss_scale.h"

#include <random>

#include <torch/torch.h>

#include "amp/host_value.h"

namespace ampkit {
namespace {

GradScalerOptions random_options(std::mt19937& rng) {
  const auto pick = [&](auto... values) {
    const std::vector<double> all{static_cast<double>(values)...};
    return all[rng() % all.size()];
  };
  GradScalerOptions options;
  options.init_scale = pick(0x1p-3, 1, 0x1p16, 0x1p126);
  options.growth_factor = pick(1.5, 2.0, 4.0);
  options.backoff_factor = pick(0.25, 0.5, 0.9);
  options.growth_interval = static_cast<int64_t>(1 + rng() % 4);
  options.min_scale = pick(0x1p-20, 0x1p-3);
  options.hysteresis = static_cast<int64_t>(1 + rng() % 3);
  options.consecutive_hysteresis = options.hysteresis > 1 && rng() % 2 == 0;
  options.max_scale = pick(0x1p127, std::numeric_limits<float>::max());
  return options;
}

void expect_equal(const LossScale::State& a, const LossScale::State& b) {
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.growth_tracker, b.growth_tracker);
  EXPECT_EQ(a.hysteresis_tracker, b.hysteresis_tracker);
}

TEST(LossScaleTest, DevicesFollowTheRuleOfTheHost) {
  std::mt19937 rng(4);
  for (int run = 0; run < 100; ++run) {
    const auto options = random_options(rng);
    LossScale host(options);
    host.place(torch::kCPU);
    const TreatCpuAsDevice as_device;
    LossScale device(options);
    device.place(torch::kCPU);
    for (int step = 0; step < 30; ++step) {
      const bool overflow = rng() % 3 == 0;
      const bool hold = rng() % 5 == 0;
      host.update(Flag(overflow), Flag(hold));
      device.update(Flag(torch::tensor(overflow)), Flag(torch::tensor(hold)));
      expect_equal(device.state(), host.state());
      EXPECT_EQ(host.tensor().item<float>(), host.state().scale);
    }
  }
}

TEST(LossScaleTest, WhatAGraphHoldsKeepsItsValue) {
  LossScale scale({.init_scale = 8});
  scale.place(torch::kCPU);
  const auto before = scale.tensor();
  scale.update(Flag(true), Flag());
  EXPECT_EQ(before.item<float>(), 8.0F);
  EXPECT_EQ(scale.tensor().item<float>(), 4.0F);
  scale.set(32);
  EXPECT_EQ(scale.tensor().item<float>(), 32.0F);
}

TEST(LossScaleTest, LoadedStateIsWhereverTheScaleIs) {
  const LossScale::State state{
      .scale = 16, .growth_tracker = 3, .hysteresis_tracker = 1};
  for (const bool as_device : {false, true}) {
    for (const bool placed_first : {false, true}) {
      std::unique_ptr<TreatCpuAsDevice> treat;
      if (as_device) {
        treat = std::make_unique<TreatCpuAsDevice>();
      }
      LossScale scale({.hysteresis = 2});
      if (placed_first) {
        scale.place(torch::kCPU);
      }
      scale.load({.hysteresis = 2}, state);
      scale.place(torch::kCPU);
      expect_equal(scale.state(), state);
      EXPECT_EQ(scale.tensor().item<float>(), 16.0F);
    }
  }
}

} // namespace
} // namespace ampkit
