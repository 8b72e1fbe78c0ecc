#include <ampkit/amp/step_result.h>

#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "amp/step_facts.h"

namespace ampkit {
namespace {

std::shared_ptr<const StepFacts> facts_of(
    const Flag& skipped, const at::Tensor& grad_norm) {
  return std::make_shared<const StepFacts>(
      StepFacts{.skipped = skipped, .grad_norm = grad_norm});
}

const char* to_text(SkipReason reason) {
  switch (reason) {
    case SkipReason::none:
      return "stepped";
    case SkipReason::overflow:
      return "skipped: the loss was finite, but gradients overflowed, in ";
    case SkipReason::loss:
      return "skipped: the loss was inf or NaN; gradients that are not "
             "finite: ";
    case SkipReason::leftover:
      return "skipped: gradients were inf or NaN before backward (call "
             "zero_grad() after a skipped step), now in ";
    case SkipReason::no_gradient:
      return "skipped: no parameter had a gradient";
  }
  return "";
}

} // namespace

StepResult StepResult::of(bool stepped) {
  return StepResult(facts_of(Flag(!stepped), {}));
}

StepResult::StepResult(const at::Tensor& found_inf, const at::Tensor& grad_norm)
    : facts_(facts_of(Flag(found_inf.ne(0)), grad_norm)) {}

StepResult::StepResult(std::shared_ptr<const StepFacts> facts)
    : facts_(std::move(facts)) {}

bool StepResult::stepped() const {
  return !facts_->skipped.read(); // waits for the device
}

SkipReason StepResult::reason() const {
  if (stepped()) {
    return SkipReason::none;
  }
  if (facts_->no_gradient) {
    return SkipReason::no_gradient;
  }
  if (facts_->bad_loss.read()) {
    return SkipReason::loss;
  }
  return facts_->leftover.read() ? SkipReason::leftover : SkipReason::overflow;
}

std::vector<NonFiniteGradient> StepResult::non_finite() const {
  return stepped() ? std::vector<NonFiniteGradient>()
                   : facts_->bad_gradients.read();
}

std::string StepResult::describe() const {
  const SkipReason why = reason();
  const bool has_gradients =
      why != SkipReason::none && why != SkipReason::no_gradient;
  if (!has_gradients) {
    return to_text(why);
  }
  const auto bad = non_finite();
  return to_text(why) +
         (bad.empty() && facts_->agreed ? "another rank" : to_text(bad));
}

double StepResult::grad_norm() const {
  // The norm of a skipped step need not show what was wrong with it: a pass
  // over the gradients that stops early leaves a finite one.
  return facts_->grad_norm.defined() && stepped()
             ? facts_->grad_norm.item<double>() // waits likewise
             : std::numeric_limits<double>::quiet_NaN();
}

at::Tensor StepResult::found_inf() const {
  return facts_->skipped.tensor(facts_->skipped.device()).to(at::kFloat);
}

} // namespace ampkit
