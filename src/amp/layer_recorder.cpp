#include "amp/layer_recorder.h"

#include <utility>

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include "kernels/no_autocast.h"

namespace ampkit {
namespace {

bool is_counted(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return tensor.numel() > 0 && tensor.layout() == at::kStrided &&
         (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16);
}

// Sees what is added to the gradient of one parameter.
class ParameterHook : public torch::autograd::FunctionPostHook {
 public:
  ParameterHook(std::weak_ptr<LayerRecorder> recorder, int module)
      : recorder_(std::move(recorder)), module_(module) {}

  std::vector<at::Tensor> operator()(
      const std::vector<at::Tensor>& outputs,
      const std::vector<at::Tensor>& inputs) override {
    if (const auto recorder = recorder_.lock(); recorder != nullptr) {
      recorder->record(
          LayerEvent::Kind::parameter_gradient, module_, inputs.at(0));
    }
    return outputs;
  }

 private:
  std::weak_ptr<LayerRecorder> recorder_;
  int module_;
};

} // namespace

void LayerRecorder::set_mode(Mode mode, int64_t max_elements) {
  max_elements_ = max_elements;
  mode_ = mode;
}

void LayerRecorder::watch_parameter(int module, const at::Tensor& parameter) {
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  const auto key = accumulator->add_post_hook(
      std::make_unique<ParameterHook>(weak_from_this(), module));
  hooks_.push_back({.accumulator = std::move(accumulator), .key = key});
}

void LayerRecorder::remove_hooks() {
  for (const Hook& hook : hooks_) {
    hook.accumulator->del_post_hook(hook.key);
  }
  hooks_.clear();
}

void LayerRecorder::on_output(int module, const at::Tensor& output) {
  outputs_.fetch_add(1, std::memory_order_relaxed);
  if (mode_ == Mode::ignore || !c10::GradMode::is_enabled()) {
    return;
  }
  record(LayerEvent::Kind::output, module, output);
  if (!output.requires_grad()) {
    return;
  }
  const std::weak_ptr<LayerRecorder> weak = weak_from_this();
  const int64_t generation = generation_;
  output.register_hook([weak, module, generation](const at::Tensor& gradient) {
    const auto self = weak.lock();
    if (self != nullptr && self->generation_ == generation) {
      self->record(LayerEvent::Kind::output_gradient, module, gradient);
    }
  });
}

void LayerRecorder::record(
    LayerEvent::Kind kind, int module, const at::Tensor& tensor) {
  if (mode_ == Mode::ignore || !tensor.defined() || !is_counted(tensor)) {
    return;
  }
  LayerEvent event{
      .kind = kind, .module = module, .dtype = tensor.scalar_type()};
  at::Tensor pending;
  if (tensor.is_cpu()) {
    event.counts = count_elements(tensor, low_, max_elements_);
  } else {
    const c10::NoGradGuard no_grad;
    const NoAutocast no_autocast;
    pending = count_on_device(tensor, low_, max_elements_);
  }
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  on_device_.push_back(std::move(pending));
}

std::vector<LayerEvent> LayerRecorder::take() {
  ++generation_;
  const std::lock_guard lock(mutex_);
  std::vector<at::Tensor> pending;
  for (const at::Tensor& counts : on_device_) {
    if (counts.defined()) {
      // Layers may be on several devices.
      pending.push_back(
          pending.empty() ? counts : counts.to(pending.front().device()));
    }
  }
  if (!pending.empty()) {
    const auto counts = at::stack(pending).cpu(); // waits for the device
    int64_t next = 0;
    for (size_t i = 0; i < events_.size(); ++i) {
      if (on_device_[i].defined()) {
        events_[i].counts = counts_from(counts[next++].contiguous());
      }
    }
  }
  on_device_.clear();
  return std::exchange(events_, {});
}

} // namespace ampkit
