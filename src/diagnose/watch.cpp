#include <ampkit/diagnose/watch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include "diagnose/watch_impl.h"

namespace ampkit::diagnose {
namespace {

constexpr double kSmallestAmax = 0.01; // growth from zero is no growth

void check_options(const WatchOptions& options) {
  TORCH_CHECK_VALUE(
      options.interval >= 1,
      "Watch: interval must be at least 1, got ",
      options.interval);
  TORCH_CHECK_VALUE(
      options.rank >= 0,
      "Watch: rank must not be negative, got ",
      options.rank);
  TORCH_CHECK_VALUE(
      options.scale_floor > 0,
      "Watch: scale_floor must be positive, got ",
      options.scale_floor);
}

} // namespace

Watch::Impl::Impl(
    std::shared_ptr<const NamedTensors> named, const WatchOptions& given)
    : names(std::move(named)),
      options(given),
      first_amax(names->entries().size(), -1.0) {
  check_options(options);
}

Watch::Step Watch::Impl::begin(int64_t number) {
  receive(/*wait=*/false);
  next = number + 1;
  auto state = std::make_unique<Step::State>();
  state->watch = this;
  state->context.step = number;
  state->context.rank = options.rank;
  state->context.scale_floor = options.scale_floor;
  if (number % options.interval == 0) {
    state->observer = std::make_shared<OpObserver>(
        names,
        options.interval == 1 ? OpObserver::Reading::at_once
                              : OpObserver::Reading::deferred,
        options.defer_on_cpu);
    remember_names();
    OpObserver::attach(state->observer);
    ++watched;
  }
  return Step(std::move(state));
}

void Watch::Impl::remember_names() {
  const Unobserved unobserved;
  for (size_t i = 0; i < names->entries().size(); ++i) {
    const auto& tensor = names->entries()[i].tensor;
    if (first_amax[i] < 0 && tensor.is_cpu() && is_watched(tensor)) {
      const double amax = largest_magnitude(tensor);
      first_amax[i] = std::isfinite(amax) ? amax : 0;
    }
  }
}

void Watch::Impl::look_at_names(StepContext& context, OpObserver& observer) {
  const Unobserved unobserved;
  // Of the steps before: after this one the weights may not be finite.
  context.grown = grown;
  context.growth = std::exchange(growth, 1);
  for (size_t i = 0; i < names->entries().size(); ++i) {
    const auto& entry = names->entries()[i];
    const bool on_device = observer.deferred() && !entry.tensor.is_cpu();
    if (on_device || options.defer_on_cpu || !is_watched(entry.tensor)) {
      continue;
    }
    const double amax = largest_magnitude(entry.tensor);
    if (!std::isfinite(amax)) {
      if (entry.parameter && observer.saw_finite(entry.tensor)) {
        context.damaged = static_cast<int32_t>(i);
      }
      observer.add_sink(Sink::Kind::named, entry.tensor);
    } else if (entry.parameter && first_amax[i] >= 0) {
      note_growth(static_cast<int32_t>(i), amax);
    }
  }
}

void Watch::Impl::note_growth(int32_t entry, double amax) {
  const double first = first_amax[static_cast<size_t>(entry)];
  const double times = amax / std::max(first, kSmallestAmax);
  if (times > growth) {
    growth = times;
    grown = entry;
  }
}

std::optional<Finding> Watch::Impl::conclude(
    OpObserver& observer, const StepContext& context) {
  auto finding = judge(observer.tape(), *names, context);
  if (!finding.has_value()) {
    return std::nullopt;
  }
  if (finding->verdict == Verdict::handled_overflow) {
    ++handled;
    return std::nullopt;
  }
  findings.push_back(*finding);
  if (options.on_finding) {
    options.on_finding(*finding);
  }
  return finding;
}

void Watch::Impl::send(
    std::shared_ptr<OpObserver> observer, StepContext context) {
  PendingStep step{
      .observer = std::move(observer), .context = std::move(context)};
  const Unobserved unobserved;
  const auto& flags = step.observer->tape().pending;
  std::vector<at::Tensor> on_one;
  for (const at::Tensor& each : flags) {
    on_one.push_back(each.to(flags.front().device(), /*non_blocking=*/true));
  }
  step.bits = at::stack(on_one);
  step.copy.send(step.bits);
  pending.push_back(std::move(step));
}

void Watch::Impl::receive(bool wait) {
  while (!pending.empty()) {
    auto& step = pending.front();
    auto bits = step.copy.receive();
    if (!bits.has_value() && !wait) {
      return;
    }
    if (!bits.has_value()) {
      bits = step.bits.cpu();
    }
    step.observer->tape().resolve(bits->contiguous());
    const auto done = std::move(step);
    pending.pop_front();
    conclude(*done.observer, done.context);
  }
}

Watch::Watch(const torch::nn::Module& module, const WatchOptions& options)
    : impl_(std::make_unique<Impl>(
          std::make_shared<const NamedTensors>(module), options)) {}

Watch::Watch(const torch::jit::Module& module, const WatchOptions& options)
    : impl_(std::make_unique<Impl>(
          std::make_shared<const NamedTensors>(module), options)) {}

Watch::~Watch() = default;

Watch::Step Watch::step() {
  return impl_->begin(impl_->next);
}

Watch::Step Watch::step(int64_t number) {
  return impl_->begin(number);
}

const std::vector<Finding>& Watch::findings() {
  impl_->receive(/*wait=*/true);
  return impl_->findings;
}

int64_t Watch::watched_steps() const {
  return impl_->watched;
}

int64_t Watch::handled_overflows() const {
  return impl_->handled;
}

Watch::Step::Step(std::unique_ptr<State> state) : state_(std::move(state)) {}

Watch::Step::Step(Step&& other) noexcept = default;

Watch::Step::~Step() {
  try {
    finish();
  } catch (const std::exception&) {
    // Whoever wants to know calls finish(). It has stopped watching already.
    return;
  }
}

bool Watch::Step::watched() const {
  return state_->observer != nullptr;
}

void Watch::Step::input(const std::string& name, const at::Tensor& tensor) {
  if (watched()) {
    auto& names = state_->context.inputs;
    state_->observer->add_input(tensor, static_cast<int32_t>(names.size()));
    names.push_back(name);
  }
}

void Watch::Step::loss(const at::Tensor& loss) {
  if (watched()) {
    state_->observer->add_sink(Sink::Kind::loss, loss);
  }
}

void Watch::Step::output(const at::Tensor& output) {
  if (watched()) {
    state_->observer->add_sink(Sink::Kind::output, output);
  }
}

void Watch::Step::micro_batch(int64_t number) {
  if (watched()) {
    state_->observer->set_micro_batch(number);
  }
}

void Watch::Step::scaled(const GradScaler& scaler, const StepResult& result) {
  if (!watched() || !scaler.is_enabled()) {
    return;
  }
  const bool on_device =
      !result.found_inf().is_cpu() || state_->watch->options.defer_on_cpu;
  if (state_->observer->deferred() && on_device) {
    // Not read: what overflows in backward is taken as handled.
    state_->context.scale = std::numeric_limits<double>::infinity();
  } else if (result.skipped()) {
    const Unobserved unobserved;
    state_->context.scale = scaler.get_scale();
  }
}

std::optional<Finding> Watch::Step::finish() {
  if (state_ == nullptr || state_->ended) {
    return state_ == nullptr ? std::nullopt : state_->finding;
  }
  state_->ended = true;
  if (!watched()) {
    return std::nullopt;
  }
  auto& watch = *state_->watch;
  const auto observer = state_->observer;
  observer->detach();
  watch.look_at_names(state_->context, *observer);
  if (observer->tape().pending.empty()) {
    state_->finding = watch.conclude(*observer, state_->context);
  } else {
    watch.send(observer, state_->context);
  }
  return state_->finding;
}

} // namespace ampkit::diagnose
