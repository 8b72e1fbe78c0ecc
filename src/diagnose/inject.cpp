#include <ampkit/diagnose/inject.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ampkit/io/nearest_name.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>

#include "amp/path_pattern.h"
#include "diagnose/named_tensors.h"
#include "diagnose/op_observer.h"

namespace ampkit::diagnose {

/// What the callbacks of an Inject work with.
struct Planter {
  Planter(
      const torch::nn::Module& module, std::vector<Fault> given, int of_rank)
      : names(module),
        faults(std::move(given)),
        done(faults.size()),
        rank(of_rank) {}

  void look_at(const at::RecordFunction& fn, int module);
  void plant(size_t number, const at::Tensor& output);

  NamedTensors names;
  std::vector<Fault> faults;
  std::vector<bool> done;
  int rank;
  int64_t step = 0;
  int64_t planted = 0;
};

struct Inject::Impl : Planter {
  using Planter::Planter;
};

namespace {

Planter*& planting_here() {
  thread_local Planter* impl = nullptr;
  return impl;
}

struct UsedModule : at::ObserverContext {
  int module = -1;
};

// The module whose parameter an op uses together with something else: a cast or
// a transposed view of a weight is no result of its module.
int module_of_arguments(
    const at::RecordFunction& fn, const NamedTensors& names) {
  int module = -1;
  int tensors = 0;
  for (const c10::IValue& argument : fn.inputs()) {
    if (!argument.isTensor() || !argument.toTensor().defined()) {
      continue;
    }
    ++tensors;
    const int named = names.find(argument.toTensor());
    if (named >= 0) {
      module = names.entry(named).module;
    }
  }
  return tensors >= 2 ? module : -1;
}

std::unique_ptr<at::ObserverContext> note_module(const at::RecordFunction& fn) {
  const auto* impl = planting_here();
  if (impl == nullptr || !c10::GradMode::is_enabled()) {
    return nullptr;
  }
  auto used = std::make_unique<UsedModule>();
  used->module = module_of_arguments(fn, impl->names);
  return used;
}

void plant_after(const at::RecordFunction& fn, at::ObserverContext* context) {
  auto* impl = planting_here();
  if (impl != nullptr && context != nullptr) {
    impl->look_at(fn, static_cast<UsedModule*>(context)->module);
  }
}

// Writes past autograd and past whoever watches, as a fault of hardware would.
void spoil(const at::Tensor& tensor, Fault::Kind kind) {
  const Unobserved unobserved;
  const auto values = tensor.variable_data();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto first = [&](double value) {
    values.reshape({-1}).narrow(0, 0, 1).fill_(value);
  };
  const auto largest = [&] {
    return values.scalar_type() == at::kHalf ? 65504.0 : 0x1.FEp127;
  };
  switch (kind) {
    case Fault::Kind::nan:
      return first(std::numeric_limits<double>::quiet_NaN());
    case Fault::Kind::inf:
      return first(kInfinity);
    case Fault::Kind::negative_inf:
      return first(-kInfinity);
    case Fault::Kind::overflow:
      values.mul_(largest());
      return;
    case Fault::Kind::underflow:
      values.div_(largest()).div_(largest());
      return;
    default:
      values.zero_();
  }
}

void check_paths(
    const std::vector<Fault>& faults, const std::vector<std::string>& paths) {
  for (const Fault& fault : faults) {
    const bool matches =
        std::any_of(paths.begin(), paths.end(), [&](const auto& path) {
          return matches_path(fault.at, path);
        });
    const auto guess = nearest_name(fault.at, paths);
    TORCH_CHECK_VALUE(
        matches,
        "Inject: at='",
        fault.at,
        "' matches no module with parameters; ",
        guess.empty() ? c10::str("the network has ", c10::Join(", ", paths))
                      : "did you mean '" + guess + "'?");
  }
}

} // namespace

void Planter::look_at(const at::RecordFunction& fn, int module) {
  if (module < 0 || fn.outputs().empty() || !fn.outputs()[0].isTensor()) {
    return;
  }
  const auto& output = fn.outputs()[0].toTensor();
  for (size_t i = 0; i < faults.size(); ++i) {
    const Fault& fault = faults[i];
    const bool now = !done[i] && fault.step == step &&
                     (fault.rank < 0 || fault.rank == rank) &&
                     matches_path(fault.at, names.module_path(module));
    if (now && is_watched(output)) {
      plant(i, output);
    }
  }
}

void Planter::plant(size_t number, const at::Tensor& output) {
  const Fault& fault = faults[number];
  if (fault.direction == Direction::forward) {
    spoil(output, fault.kind);
  } else if (output.requires_grad()) {
    output.register_hook([kind = fault.kind](const at::Tensor& gradient) {
      auto spoiled = gradient.clone();
      spoil(spoiled, kind);
      return spoiled;
    });
  } else {
    return;
  }
  done[number] = true;
  ++planted;
}

struct Inject::Step::State {
  explicit State(std::shared_ptr<Impl> of) : impl(std::move(of)) {
    planting_here() = impl.get();
    handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(note_module, plant_after)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~State() {
    at::removeCallback(handle);
    planting_here() = nullptr;
  }
  State(const State&) = delete;
  State(State&&) = delete;
  State& operator=(const State&) = delete;
  State& operator=(State&&) = delete;

  std::shared_ptr<Impl> impl;
  at::CallbackHandle handle = 0;
};

Inject::Step::Step(std::unique_ptr<State> state) : state_(std::move(state)) {}
Inject::Step::Step(Step&& other) noexcept = default;
Inject::Step::~Step() = default;

Inject::Inject(
    const torch::nn::Module& module, std::vector<Fault> faults, int rank)
    : impl_(std::make_shared<Impl>(module, std::move(faults), rank)) {
  TORCH_CHECK_VALUE(rank >= 0, "Inject: rank must not be negative, got ", rank);
  check_paths(impl_->faults, impl_->names.module_paths());
}

Inject::~Inject() = default;

Inject::Step Inject::step(int64_t number) {
  TORCH_CHECK(
      planting_here() == nullptr,
      "Inject::step: this thread plants faults already; end the other step "
      "first");
  impl_->step = number;
  return Step(std::make_unique<Step::State>(impl_));
}

int64_t Inject::planted() const {
  return impl_->planted;
}

} // namespace ampkit::diagnose
