// GradScaler: what the ranks of a data-parallel run make of a step together.

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "amp/grad_scaler_impl.h"

namespace ampkit {
namespace {

// The same on all ranks, whatever they found and where.
c10::Device device_of_parameters(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) {
      return group.params().front().device();
    }
  }
  return at::kCPU;
}

} // namespace

GradScaler::Impl::Verdict GradScaler::Impl::agree(
    const Verdict& own, const torch::optim::Optimizer& optimizer) const {
  const auto device = options.enabled ? scale.tensor().device()
                                      : device_of_parameters(optimizer);
  auto flags = at::stack({own.skip.tensor(device),
                          own.bad_loss.tensor(device),
                          own.leftover.tensor(device),
                          own.has_gradient.tensor(device)})
                   .to(at::kFloat);
  const auto sizes = flags.sizes().vec();
  options.agree_over_ranks(flags);
  TORCH_CHECK(
      flags.defined() && flags.sizes() == sizes,
      "GradScaler::step: agree_over_ranks must keep the shape ",
      at::IntArrayRef(sizes),
      ", got ",
      flags.defined() ? flags.sizes() : at::IntArrayRef());
  const auto agreed = flags.ne(0);
  return {
      .skip = Flag(agreed[0]),
      .bad_loss = Flag(agreed[1]),
      .leftover = Flag(agreed[2]),
      .has_gradient = Flag(agreed[3])};
}

GradScaler::Impl::Verdict GradScaler::Impl::judge(
    const Flag& bad,
    const std::vector<Part>& parts,
    const Optimizers& optimizers) const {
  Verdict verdict{
      .skip = bad | bad_loss,
      .bad_loss = bad_loss,
      .has_gradient = Flag(!parts.empty())};
  for (const Part& part : parts) {
    verdict.leftover = verdict.leftover | leftovers->found(part.optimizer);
  }
  return options.agree_over_ranks ? agree(verdict, optimizers.front().get())
                                  : verdict;
}

// No optimizer here has gradients. If those of other ranks do, this one counts
// the step as they do.
StepResult GradScaler::Impl::follow_others(
    const Optimizers& optimizers,
    const Verdict& verdict,
    const StepOptions& step_options) {
  // Waits for the device; only where there is nothing to do otherwise.
  if (!verdict.has_gradient.read()) {
    if (!step_options.allow_no_grad) {
      require_gradient(optimizers.front().get());
    }
    return StepResult(std::make_shared<const StepFacts>(
        StepFacts{.skipped = Flag(true), .no_gradient = true}));
  }
  const auto facts = std::make_shared<const StepFacts>(StepFacts{
      .skipped = verdict.skip,
      .bad_loss = verdict.bad_loss,
      .leftover = verdict.leftover,
      .agreed = true});
  for (torch::optim::Optimizer& optimizer : optimizers) {
    counter.count_step(verdict.skip, verdict.fault());
    if (checks()) {
      records[&optimizer] = {.facts = facts, .stepped = true};
    }
  }
  return StepResult(facts);
}

} // namespace ampkit
