// GradScaler: what an iteration comes to.

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "amp/grad_scaler_impl.h"

namespace ampkit {
namespace {

using Facts = std::shared_ptr<const StepFacts>;

bool reached(int64_t count, int64_t limit) {
  return limit > 0 && count >= limit;
}

// The first of several optimizers that was skipped; waits for the device.
std::string account_of(const std::vector<Facts>& facts) {
  for (const Facts& one : facts) {
    const StepResult result(one);
    if (result.skipped()) {
      return result.describe();
    }
  }
  return "not recorded";
}

} // namespace

void GradScaler::Impl::end_iteration(const char* who) {
  std::vector<Facts> facts;
  Flag overflow;
  Flag fault;
  const torch::optim::Optimizer* not_agreed = nullptr;
  for (const auto& [optimizer, record] : records) {
    if (record.facts) {
      facts.push_back(record.facts);
      overflow = overflow | record.facts->overflow();
      fault = fault | record.facts->fault();
      not_agreed = record.stepped ? not_agreed : optimizer;
    }
  }
  if (not_agreed != nullptr && options.agree_over_ranks) {
    const auto verdict =
        agree({.skip = overflow, .bad_loss = fault}, *not_agreed);
    overflow = verdict.skip;
    fault = verdict.bad_loss;
  }
  TORCH_CHECK(
      !facts.empty(),
      "GradScaler::",
      who,
      ": no optimizer was unscaled or stepped since the last update()");
  if (options.enabled && options.dynamic) {
    scale.update(overflow, fault & !overflow);
  }
  counter.count_iteration(overflow | fault, fault);
  records.clear();
  bad_loss = Flag();
  leftovers->next_iteration();
  scaled_gradients->end();
  check_limits(std::move(facts));
}

void GradScaler::Impl::check_limits(std::vector<Facts> facts) {
  const auto peek = counter.peek();
  // What a device counted belongs to the iteration in which it was sent.
  const auto counted = peek.sent
                           ? std::exchange(counted_facts, std::move(facts))
                           : std::move(facts);
  if (!peek.counts) {
    return;
  }
  const auto faults = peek.counts->faults_in_a_row;
  TORCH_CHECK(
      !reached(faults, options.max_consecutive_faults),
      "GradScaler::update: ",
      faults,
      " iterations in a row were faults, which no loss scale cures; the last "
      "was ",
      account_of(counted),
      ". Look for bad inputs or labels, log or division of 0, overflow in the "
      "forward pass, or weights that are not finite already "
      "(max_consecutive_faults sets this limit)");
  const auto skips = peek.counts->skips_in_a_row;
  TORCH_CHECK(
      !reached(skips, options.max_consecutive_skips),
      "GradScaler::update: ",
      skips,
      " iterations in a row were skipped; the last was ",
      account_of(counted),
      "; the loss scale is now ",
      options.enabled ? static_cast<double>(scale.state().scale) : 1.0,
      ". Lower the learning rate, clip gradients, or compute these layers in "
      "BF16 or FP32 (max_consecutive_skips sets this limit)");
}

void GradScaler::update() {
  if (!impl_->checks()) {
    return;
  }
  TORCH_CHECK(
      !impl_->options.enabled || impl_->scale.placed(),
      "GradScaler::update: call scale(loss) first");
  impl_->end_iteration("update");
}

void GradScaler::update(double new_scale) {
  const auto& o = impl_->options;
  TORCH_CHECK_VALUE(
      new_scale > 0 && new_scale >= o.min_scale && new_scale <= o.max_scale,
      "GradScaler::update: new_scale must be in [min_scale, max_scale] = [",
      o.min_scale,
      ", ",
      o.max_scale,
      "], got ",
      new_scale);
  if (!o.enabled) {
    return;
  }
  TORCH_CHECK(
      impl_->scale.placed(), "GradScaler::update: call scale(loss) first");
  impl_->scale.set(new_scale);
  abandon();
}

void GradScaler::abandon() {
  impl_->records.clear();
  impl_->bad_loss = Flag();
  impl_->leftovers->next_iteration();
  impl_->scaled_gradients->end();
}

} // namespace ampkit
