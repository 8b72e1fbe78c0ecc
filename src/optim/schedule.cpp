#include <ampkit/optim/schedule.h>

#include <c10/util/Exception.h>

namespace ampkit::optim {

ConstantLR::ConstantLR(
    torch::optim::Optimizer& optimizer, const ConstantLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

LinearLR::LinearLR(
    torch::optim::Optimizer& optimizer, const LinearLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

CosineAnnealingLR::CosineAnnealingLR(
    torch::optim::Optimizer& optimizer, const CosineAnnealingLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

StepLR::StepLR(torch::optim::Optimizer& optimizer, const StepLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

MultiStepLR::MultiStepLR(
    torch::optim::Optimizer& optimizer, const MultiStepLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(
    torch::optim::Optimizer& optimizer,
    const CosineAnnealingWarmRestartsOptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

PolynomialLR::PolynomialLR(
    torch::optim::Optimizer& optimizer, const PolynomialLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

WarmupPolynomialLR::WarmupPolynomialLR(
    torch::optim::Optimizer& optimizer,
    const WarmupPolynomialLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

WarmupStableDecayLR::WarmupStableDecayLR(
    torch::optim::Optimizer& optimizer,
    const WarmupStableDecayLROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

SWALR::SWALR(torch::optim::Optimizer& optimizer, const SWALROptions& options)
    : SequentialLR(optimizer, {options}, {}) {}

namespace {

std::vector<ScheduleOptions> parts_of(const WarmupCosineLROptions& o) {
  TORCH_CHECK_VALUE(
      o.warmup_steps >= 0,
      "WarmupCosineLR: warmup_steps must be >= 0, got ",
      o.warmup_steps);
  TORCH_CHECK_VALUE(
      o.total_steps > o.warmup_steps,
      "WarmupCosineLR: total_steps must be >= ",
      o.warmup_steps + 1,
      ", got ",
      o.total_steps);
  return {
      LinearLROptions{
          .start_factor = o.start_factor, .total_iters = o.warmup_steps},
      CosineAnnealingLROptions{
          .T_max = o.total_steps - o.warmup_steps, .eta_min = o.eta_min}};
}

} // namespace

WarmupCosineLR::WarmupCosineLR(
    torch::optim::Optimizer& optimizer, const WarmupCosineLROptions& options)
    : SequentialLR(optimizer, parts_of(options), {options.warmup_steps}),
      total_steps_(options.total_steps) {}

double WarmupCosineLR::rate(size_t g, int64_t step, double lr) const {
  return step > total_steps_ ? lr : SequentialLR::rate(g, step, lr);
}

} // namespace ampkit::optim
