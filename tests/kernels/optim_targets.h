#pragma once

#include <cstdint>

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace ampkit::kernels {

/// Runs `body` once for each instruction set that was compiled and that this
/// processor has, the oldest too, then goes back to the best one.
template <class Body>
void for_each_target(const Body& body) {
  const int64_t all = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t rest = all; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

} // namespace ampkit::kernels
