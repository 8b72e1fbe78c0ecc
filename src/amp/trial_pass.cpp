#include "amp/trial_pass.h"

#include <utility>

namespace ampkit {
namespace {

bool& is_active() {
  thread_local bool value = false;
  return value;
}

} // namespace

TrialPass::TrialPass() : before_(std::exchange(is_active(), true)) {}

TrialPass::~TrialPass() {
  is_active() = before_;
}

bool TrialPass::active() {
  return is_active();
}

} // namespace ampkit
