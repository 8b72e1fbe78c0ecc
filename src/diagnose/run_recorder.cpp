#include "diagnose/run_recorder.h"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "diagnose/op_observer.h"
#include "diagnose/op_replay.h"

namespace ampkit::diagnose {

// Outlives its recorder in the hooks of tensors, which then say nothing.
struct RunRecorder::State {
  std::shared_ptr<const NamedTensors> names;
  RunListener* listener = nullptr; // null: ended
  bool in_float64 = false;
  int depth = 0;
  size_t next = 0;
  int last_module = -1;
  OpTraitsCache traits;
};

namespace {

using StatePtr = std::shared_ptr<RunRecorder::State>;

StatePtr& recorder_of_thread() {
  thread_local StatePtr state;
  return state;
}

// An op at its start: ops change what their arguments hold.
struct OpStart : at::ObserverContext {
  std::vector<c10::IValue> arguments;
  std::vector<const c10::StorageImpl*> storages;
  int module = -1;
};

void note_argument(
    const RunRecorder::State& state, const at::Tensor& tensor, OpStart& start) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return;
  }
  start.storages.push_back(storage_of(tensor));
  const int named = state.names->find(tensor);
  if (named >= 0 && start.module < 0) {
    start.module = state.names->entry(named).module;
  }
}

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& fn) {
  const auto& state = recorder_of_thread();
  if (state->depth++ > 0 || fn.scope() != at::RecordScope::FUNCTION ||
      !at::GradMode::is_enabled()) {
    return nullptr;
  }
  const Unobserved unobserved;
  auto start = std::make_unique<OpStart>();
  for (const c10::IValue& argument : fn.inputs()) {
    if (argument.isTensor()) {
      note_argument(*state, argument.toTensor(), *start);
    } else if (argument.isTensorList()) {
      for (const c10::IValue& each : argument.toListRef()) {
        note_argument(*state, each.toTensor(), *start);
      }
    }
  }
  if (state->in_float64) {
    start->arguments.assign(fn.inputs().begin(), fn.inputs().end());
  }
  return start;
}

// The first output, if it is a floating-point tensor that the op made or wrote.
std::optional<at::Tensor> made_by(
    const std::vector<c10::IValue>& outputs,
    const OpStart& start,
    const OpTraits& traits) {
  if (outputs.empty() || !outputs.front().isTensor()) {
    return std::nullopt;
  }
  const auto& tensor = outputs.front().toTensor();
  if (!is_watched(tensor) || traits.uninitialised) {
    return std::nullopt;
  }
  for (const auto* storage : start.storages) {
    if (storage == storage_of(tensor) && !traits.writes) {
      return std::nullopt;
    }
  }
  return tensor;
}

void listen_to_gradient(
    const StatePtr& state, const RecordedOp& op, const at::Tensor& output) {
  output.register_hook([state, op](const at::Tensor& gradient) {
    if (state->listener != nullptr && gradient.defined()) {
      const Unobserved unobserved;
      state->listener->on_gradient(op, gradient);
    }
  });
}

void run_in_float64(
    RunRecorder::State& state,
    const at::RecordFunction& fn,
    const OpStart& start,
    const RecordedOp& op) {
  const auto outputs = outputs_in_float64(fn, start.arguments);
  if (outputs.has_value() && !outputs->empty() && outputs->front().isTensor()) {
    state.listener->on_float64(op, outputs->front().toTensor());
  }
}

void end_op(const at::RecordFunction& fn, at::ObserverContext* context) {
  const auto state = recorder_of_thread();
  --state->depth;
  if (context == nullptr) {
    return;
  }
  const Unobserved unobserved;
  const auto& start = *static_cast<OpStart*>(context);
  if (start.module >= 0) {
    state->last_module = start.module;
  }
  const auto& traits = state->traits.of(fn);
  const auto output = made_by(fn.outputs(), start, traits);
  // A cast does nothing in one precision and something in another.
  if (!output.has_value() || is_cast(fn)) {
    return;
  }
  const RecordedOp op{
      .index = state->next++,
      .name = fn.name(),
      .module = state->last_module,
      .uses_parameter = start.module >= 0};
  state->listener->on_output(op, *output);
  if (state->in_float64 && !traits.once_only) {
    run_in_float64(*state, fn, start, op);
  }
  if (output->requires_grad() && output->grad_fn() != nullptr) {
    listen_to_gradient(state, op, *output);
  }
}

} // namespace

RunRecorder::RunRecorder(
    std::shared_ptr<const NamedTensors> names,
    RunListener& listener,
    bool in_float64)
    : state_(std::make_shared<State>()) {
  TORCH_CHECK(
      recorder_of_thread() == nullptr,
      "this thread is being recorded already; end the other comparison first");
  state_->names = std::move(names);
  state_->listener = &listener;
  state_->in_float64 = in_float64;
  recorder_of_thread() = state_;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin_op, end_op)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes(
              {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

RunRecorder::~RunRecorder() {
  at::removeCallback(handle_);
  recorder_of_thread().reset();
  state_->listener = nullptr;
}

} // namespace ampkit::diagnose
