// Faults planted in small nets: does the watch name the right op, layer and
// kind? Prints the score.
#include "diagnose/planted_faults.h"

#include <cstdio>
#include <sstream>

namespace ampkit::diagnose {
namespace {

bool names_op(const Finding& finding, const std::string& ops) {
  const auto is = [&](const std::string& name, const std::string& op) {
    return name == "aten::" + op || name == "aten::" + op + "_";
  };
  std::istringstream all(ops);
  bool named = ops.empty();
  for (std::string op; std::getline(all, op, '|');) {
    named = named || is(finding.op, op) || is(finding.forward_op, op);
  }
  return named;
}

bool names_place(const Finding& finding, const std::string& place) {
  return place.empty() || finding.module == place || finding.after == place ||
         finding.after.starts_with(place + ".") || finding.parameter == place;
}

// Of the weights and data.
constexpr int64_t kSeeds = 3;

bool is_right(const PlantedFault& fault, const std::optional<Finding>& found) {
  const bool right = found.has_value() &&
                     found->verdict == fault.expected.verdict &&
                     names_op(*found, fault.expected.op) &&
                     names_place(*found, fault.expected.place);
  EXPECT_TRUE(right) << fault.name << ": expected "
                     << to_string(fault.expected.verdict) << " in "
                     << fault.expected.op << " at " << fault.expected.place
                     << "\n"
                     << (found.has_value() ? to_string(*found) : "nothing");
  return right;
}

TEST(PlantedFaultsTest, EachIsFoundWithItsOpItsLayerAndItsKind) {
  const auto faults = every_fault();
  int right = 0;
  for (const auto& fault : faults) {
    bool always = true;
    for (int64_t seed = 1; seed <= kSeeds; ++seed) {
      torch::manual_seed(seed);
      always = is_right(fault, fault.run()) && always;
    }
    right += always;
  }
  std::printf("planted faults found: %d / %zu\n", right, faults.size());
  EXPECT_GE(faults.size(), 30);
}

// What is said to be about precision is cured by float32, and nothing else is.
TEST(PlantedFaultsTest, TheCureOfPrecisionWorksWhereItIsProposed) {
  all_in_float32() = true;
  for (const auto& fault : every_fault()) {
    if (fault.dtype_in_code) {
      continue;
    }
    torch::manual_seed(1);
    const auto found = fault.run();
    if (!is_about_precision(fault.expected.verdict)) {
      EXPECT_TRUE(found.has_value()) << fault.name << ": cured by float32";
    } else {
      EXPECT_FALSE(found.has_value())
          << fault.name << ": " << to_string(*found);
    }
  }
  all_in_float32() = false;
}

TEST(PlantedFaultsTest, HealthyRunsGiveNoAlarm) {
  const auto runs = healthy_runs();
  int alarms = 0;
  for (const auto& healthy : runs) {
    for (int64_t seed = 1; seed <= kSeeds; ++seed) {
      torch::manual_seed(seed);
      const auto finding = healthy.run();
      alarms += finding.has_value();
      EXPECT_FALSE(finding.has_value())
          << healthy.name << ": " << to_string(*finding);
    }
  }
  std::printf(
      "false alarms: %d / %zu healthy runs\n", alarms, runs.size() * kSeeds);
  EXPECT_GE(runs.size(), 20);
}

} // namespace
} // namespace ampkit::diagnose
