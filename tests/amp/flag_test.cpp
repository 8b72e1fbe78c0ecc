#include "amp/flag.h"

#include <limits>

#include <torch/torch.h>

#include "amp/host_value.h"

namespace ampkit {
namespace {

Flag flag(bool value, bool on_device) {
  if (!on_device) {
    return Flag(value);
  }
  const TreatCpuAsDevice as_device;
  return Flag(torch::tensor(value));
}

TEST(FlagTest, LogicIsTheSameWhereverTheValuesAre) {
  for (const bool a_on_device : {false, true}) {
    for (const bool b_on_device : {false, true}) {
      for (const bool a : {false, true}) {
        for (const bool b : {false, true}) {
          const TreatCpuAsDevice as_device; // what is computed stays there
          const Flag x = flag(a, a_on_device);
          const Flag y = flag(b, b_on_device);
          EXPECT_EQ((x | y).read(), a || b);
          EXPECT_EQ((x & y).read(), a && b);
          EXPECT_EQ((!x).read(), !a);
          EXPECT_EQ(x.tensor(torch::kCPU).item<bool>(), a);
          EXPECT_EQ(x.is_known(), !a_on_device);
        }
      }
    }
  }
}

TEST(FlagTest, WhatIsKnownDecidesWithoutTheDevice) {
  const Flag unknown = flag(true, true);
  EXPECT_TRUE((unknown | Flag(true)).is_known());
  EXPECT_TRUE((unknown & Flag(false)).is_known());
  EXPECT_FALSE((unknown & Flag(true)).is_known());
}

TEST(FlagTest, NotFiniteSeesAnyValueOfAnyDtype) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const bool as_device : {false, true}) {
    std::unique_ptr<TreatCpuAsDevice> treat;
    if (as_device) {
      treat = std::make_unique<TreatCpuAsDevice>();
    }
    for (const auto type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      const auto ones = torch::ones({2, 3}, type);
      EXPECT_FALSE(Flag::not_finite(ones).read()) << type;
      EXPECT_FALSE(Flag::not_finite(ones[0][0]).read());
      for (const double bad : {kInf, -kInf, std::nan("")}) {
        auto values = ones.clone();
        values[1][2] = bad;
        EXPECT_TRUE(Flag::not_finite(values).read()) << type << bad;
        EXPECT_TRUE(Flag::not_finite(values[1][2]).read()) << type << bad;
      }
    }
  }
}

} // namespace
} // namespace ampkit
