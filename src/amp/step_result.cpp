#include <ampkit/amp/step_result.h>

#include <limits>
#include <utility>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

namespace ampkit {

StepResult StepResult::of(bool stepped) {
  return {stepped ? at::zeros({}) : at::ones({}), at::Tensor()};
}

StepResult::StepResult(at::Tensor found_inf, at::Tensor grad_norm)
    : found_inf_(std::move(found_inf)), grad_norm_(std::move(grad_norm)) {}

bool StepResult::stepped() const {
  return found_inf_.item<double>() == 0; // waits for the device
}

double StepResult::grad_norm() const {
  // The norm of a skipped step need not show what was wrong with it: a pass
  // over the gradients that stops early leaves a finite one.
  return grad_norm_.defined() && stepped()
             ? grad_norm_.item<double>() // waits likewise
             : std::numeric_limits<double>::quiet_NaN();
}

} // namespace ampkit
