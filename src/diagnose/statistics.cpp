#include <ampkit/diagnose/statistics.h>

#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include "diagnose/named_tensors.h"
#include "diagnose/op_observer.h"

namespace ampkit::diagnose {
namespace {

struct StatisticsSink {
  virtual ~StatisticsSink() = default;
  virtual int module_of(const at::RecordFunction& fn) const = 0;
  virtual void output(int module, const at::Tensor& tensor) = 0;
  int depth = 0; // of ops that use a parameter: the outermost counts
};

StatisticsSink*& counting_here() {
  thread_local StatisticsSink* sink = nullptr;
  return sink;
}

struct CountedOp : at::ObserverContext {
  int module = -1;
};

std::unique_ptr<at::ObserverContext> begin_counted(
    const at::RecordFunction& fn) {
  auto* sink = counting_here();
  if (sink == nullptr || !c10::GradMode::is_enabled()) {
    return nullptr;
  }
  const int module = sink->module_of(fn);
  if (module < 0) {
    return nullptr;
  }
  auto op = std::make_unique<CountedOp>();
  op->module = module;
  ++sink->depth;
  return op;
}

void end_counted(const at::RecordFunction& fn, at::ObserverContext* context) {
  auto* sink = counting_here();
  if (sink == nullptr || context == nullptr) {
    return;
  }
  const bool outermost = --sink->depth == 0;
  if (outermost && !fn.outputs().empty() && fn.outputs()[0].isTensor()) {
    sink->output(
        static_cast<CountedOp*>(context)->module, fn.outputs()[0].toTensor());
  }
}

} // namespace

struct Statistics::Impl : StatisticsSink {
  Impl(const torch::nn::Module& module, const StatisticsOptions& given)
      : names(module), options(given) {
    for (const auto& entry : names.entries()) {
      if (entry.parameter && !places.contains(entry.module)) {
        places.emplace(entry.module, layers.size());
        layers.push_back({.module = names.module_path(entry.module)});
      }
    }
  }

  LayerStatistics* layer(int module) {
    const auto found = places.find(module);
    return found == places.end() ? nullptr : &layers[found->second];
  }

  int module_of(const at::RecordFunction& fn) const override;
  void output(int module, const at::Tensor& tensor) override;
  void begin();
  void read_gradients();
  void keep_weights();
  void compare_weights();
  at::Tensor updated(const at::Tensor& parameter) const {
    return options.master ? options.master(parameter) : parameter;
  }

  NamedTensors names;
  StatisticsOptions options;
  std::vector<LayerStatistics> layers;
  std::unordered_map<int, size_t> places;
  double scale = 1;
  int64_t next = 0;
  // By entry: before the update, and where there is a gradient.
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> moved;
};

// The module whose parameter is used together with something else: a cast or a
// view of a weight is no result of its module.
int Statistics::Impl::module_of(const at::RecordFunction& fn) const {
  int module = -1;
  int tensors = 0;
  for (const c10::IValue& argument : fn.inputs()) {
    if (argument.isTensor() && argument.toTensor().defined()) {
      ++tensors;
      const int named = names.find(argument.toTensor());
      module = named >= 0 ? names.entry(named).module : module;
    }
  }
  return tensors >= 2 ? module : -1;
}

void Statistics::Impl::output(int module, const at::Tensor& tensor) {
  auto* found = layer(module);
  if (found == nullptr || !is_watched(tensor)) {
    return;
  }
  found->dtype = tensor.scalar_type();
  found->outputs.add(tensor);
  if (tensor.requires_grad()) {
    tensor.register_hook(
        [this, module, by = 1 / scale](const at::Tensor& gradient) {
          if (counting_here() == this && is_watched(gradient)) {
            layer(module)->output_gradients.add(gradient, by);
          }
        });
  }
}

void Statistics::Impl::begin() {
  for (auto& each : layers) {
    each.outputs = {};
    each.output_gradients = {};
    each.parameter_gradients = {};
    each.weights = {};
    each.update_ratio = std::numeric_limits<double>::quiet_NaN();
    each.swallowed = std::numeric_limits<double>::quiet_NaN();
  }
  depth = 0;
}

void Statistics::Impl::read_gradients() {
  for (const auto& entry : names.entries()) {
    if (!entry.parameter || !is_watched(entry.tensor)) {
      continue;
    }
    auto& found = *layer(entry.module);
    found.weights.add(entry.tensor);
    const auto& gradient = entry.tensor.grad();
    if (gradient.defined() && is_watched(gradient)) {
      found.parameter_gradients.add(gradient, 1 / scale);
    }
  }
}

void Statistics::Impl::keep_weights() {
  const Unobserved unobserved;
  weights.assign(names.entries().size(), {});
  moved.assign(names.entries().size(), {});
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto& entry = names.entries()[i];
    const auto& gradient = entry.tensor.grad();
    if (entry.parameter && gradient.defined() && is_watched(gradient)) {
      weights[i] = updated(entry.tensor).detach().clone();
      moved[i] = gradient.detach().ne(0);
    }
  }
}

void Statistics::Impl::compare_weights() {
  const Unobserved unobserved;
  struct Sums {
    double change = 0;
    double weight = 0;
    int64_t should = 0;
    int64_t still = 0;
  };
  std::unordered_map<int, Sums> sums;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!weights[i].defined()) {
      continue;
    }
    const auto& entry = names.entries()[i];
    // A master that came with this update is of other bits than what was kept.
    const auto now = updated(entry.tensor).detach();
    const auto change = now.to(at::kDouble) - weights[i].to(at::kDouble);
    auto& sum = sums[entry.module];
    sum.change += change.square().sum().item<double>();
    sum.weight += weights[i].to(at::kDouble).square().sum().item<double>();
    sum.should += moved[i].sum().item<int64_t>();
    sum.still += change.eq(0).logical_and(moved[i]).sum().item<int64_t>();
  }
  for (const auto& [module, sum] : sums) {
    auto& found = *layer(module);
    found.update_ratio = std::sqrt(sum.change / sum.weight);
    found.swallowed = sum.should == 0 ? 0.0
                                      : static_cast<double>(sum.still) /
                                            static_cast<double>(sum.should);
  }
}

struct Statistics::Step::State {
  explicit State(std::shared_ptr<Impl> of) : impl(std::move(of)) {
    counting_here() = impl.get();
    handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(begin_counted, end_counted)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~State() {
    at::removeCallback(handle);
    counting_here() = nullptr;
    const auto most = static_cast<size_t>(impl->options.history);
    for (auto& layer : impl->layers) {
      layer.amax_history.push_back(layer.outputs.amax());
      if (layer.amax_history.size() > most) {
        layer.amax_history.erase(layer.amax_history.begin());
      }
    }
    impl->weights.clear();
    impl->moved.clear();
  }
  State(const State&) = delete;
  State(State&&) = delete;
  State& operator=(const State&) = delete;
  State& operator=(State&&) = delete;

  std::shared_ptr<Impl> impl;
  at::CallbackHandle handle = 0;
};

Statistics::Step::Step(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
Statistics::Step::Step(Step&& other) noexcept = default;
Statistics::Step::~Step() = default;

bool Statistics::Step::looked_at() const {
  return state_ != nullptr;
}

void Statistics::Step::before_update() {
  if (looked_at()) {
    state_->impl->read_gradients();
    state_->impl->keep_weights();
  }
}

void Statistics::Step::after_update() {
  if (looked_at()) {
    state_->impl->compare_weights();
  }
}

Statistics::Statistics(
    const torch::nn::Module& module, const StatisticsOptions& options)
    : impl_(std::make_shared<Impl>(module, options)) {
  TORCH_CHECK_VALUE(
      options.interval >= 1,
      "Statistics: interval must be at least 1, got ",
      options.interval);
  TORCH_CHECK_VALUE(
      options.history >= 1,
      "Statistics: history must be at least 1, got ",
      options.history);
}

Statistics::~Statistics() = default;

Statistics::Step Statistics::step(double scale) {
  TORCH_CHECK_VALUE(
      scale > 0, "Statistics::step: scale must be positive, got ", scale);
  if (impl_->next++ % impl_->options.interval != 0) {
    return Step(nullptr);
  }
  TORCH_CHECK(
      counting_here() == nullptr,
      "Statistics::step: this thread has a step already; end the other first");
  impl_->scale = scale;
  impl_->begin();
  return Step(std::make_unique<Step::State>(impl_));
}

const std::vector<LayerStatistics>& Statistics::layers() const {
  return impl_->layers;
}

double Statistics::recommended_scale() const {
  double scale = std::numeric_limits<double>::infinity();
  for (const auto& layer : impl_->layers) {
    for (const auto* each :
         {&layer.output_gradients, &layer.parameter_gradients}) {
      if (each->amax() > 0) {
        scale = std::min(scale, recommended_loss_scale(*each));
      }
    }
  }
  return std::isinf(scale) ? 1 : scale;
}

} // namespace ampkit::diagnose
