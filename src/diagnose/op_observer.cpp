#include "diagnose/op_observer.h"

#include <cmath>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

namespace ampkit::diagnose {
namespace {

constexpr std::string_view kObserverName = "ampkit::diagnose::OpObserver";
constexpr c10::DebugInfoKind kObserverKind(&kObserverName);

// The record around a node, in which what it gave is checked and summed to the
// shape of the input.
constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";

OpObserver* current_observer() {
  return static_cast<OpObserver*>(
      c10::ThreadLocalDebugInfo::get(kObserverKind));
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  OpObserver* observer = current_observer();
  return observer == nullptr ? nullptr : observer->start(fn);
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  if (context != nullptr) {
    auto& frame = *static_cast<Frame*>(context);
    frame.observer->end(fn, frame);
  }
}

} // namespace

OpObserver::OpObserver(
    std::shared_ptr<const NamedTensors> names, Reading reading, bool defer_all)
    : names_(std::move(names)), reading_(reading), defer_all_(defer_all) {}

OpObserver::~OpObserver() = default;

void OpObserver::attach(const std::shared_ptr<OpObserver>& observer) {
  TORCH_CHECK(
      current_observer() == nullptr,
      "Watch::step: this thread is being watched already; end the other step "
      "first");
  c10::ThreadLocalDebugInfo::_push(kObserverKind, observer);
  observer->handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_start, on_end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes(
              {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

void OpObserver::detach() {
  at::removeCallback(handle_);
  c10::ThreadLocalDebugInfo::_pop(kObserverKind);
}

std::unique_ptr<at::ObserverContext> OpObserver::start(
    const at::RecordFunction& fn) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex_);
  auto frame = std::make_unique<Frame>();
  frame->observer = shared_from_this();
  frame->push();
  frame->fn = &fn;
  frame->name = fn.name();
  frame->first_value = tape_.values.size();
  frame->is_node = fn.scope() == at::RecordScope::BACKWARD_FUNCTION ||
                   frame->name.starts_with(kEngine);
  if (!frame->is_node) {
    frame->traits = traits_.of(fn);
  }
  const int32_t root = frame->parent == nullptr ? std::exchange(root_, -1) : -1;
  note_inputs(fn, *frame);
  if (frame->is_node) {
    if (frame->parent == nullptr && root >= 0) {
      tape_.sinks.push_back({.kind = Sink::Kind::loss, .value = root});
    }
    note_node(fn, *frame);
  } else {
    note_forward(fn, *frame);
  }
  return frame;
}

void OpObserver::note_inputs(const at::RecordFunction& fn, Frame& frame) {
  for (const c10::IValue& argument : fn.inputs()) {
    note_input(argument, frame);
  }
  // A node's gradients are given away: holding them would cost a copy.
  if (!frame.is_node) {
    frame.arguments.assign(fn.inputs().begin(), fn.inputs().end());
  }
}

void OpObserver::note_input(const c10::IValue& argument, Frame& frame) {
  if (argument.isTensor()) {
    note_tensor(argument.toTensor(), frame);
  } else if (argument.isDouble()) {
    frame.constant_inf |= std::isinf(argument.toDouble());
  } else if (argument.isList()) {
    for (const c10::IValue& each : argument.toListRef()) {
      if (each.isTensor()) {
        note_tensor(each.toTensor(), frame);
      }
    }
  }
}

void OpObserver::note_tensor(const at::Tensor& tensor, Frame& frame) {
  const int named = tensor.defined() ? names_->find(tensor) : -1;
  // The weight rather than the bias.
  if (named >= 0 &&
      (frame.named < 0 ||
       names_->entry(frame.named).tensor.numel() < tensor.numel())) {
    frame.named = named;
    frame.module = names_->entry(named).module;
  }
  if (is_watched(tensor)) {
    const int32_t held = held_by(tensor);
    const bool inside = held < 0 && named < 0 && frame.parent != nullptr;
    frame.inputs.push_back(
        {.storage = storage_of(tensor),
         .value = inside      ? new_intermediate(tensor, frame)
                  : held >= 0 ? held
                              : new_source(tensor)});
  }
}

void OpObserver::note_forward(const at::RecordFunction& fn, Frame& frame) {
  if (frame.parent != nullptr) {
    frame.node = frame.parent->node;
    frame.sequence = frame.parent->sequence;
    frame.forward_op = frame.parent->forward_op;
    if (frame.named < 0) { // its caller's
      frame.named = frame.parent->named;
      frame.module = frame.parent->module;
    }
  }
  if (!frame.node.empty()) {
    return;
  }
  if (frame.parent == nullptr && frame.name == "aten::ones_like" &&
      !frame.inputs.empty()) {
    root_ = frame.inputs.front().value;
  }
  const int32_t before = last_module_;
  if (frame.module >= 0 && at::GradMode::is_enabled()) {
    last_module_ = frame.module;
    tape_.modules.push_back(
        {.op = static_cast<int32_t>(tape_.ops.size()),
         .module = frame.module,
         .micro_batch = micro_batch_});
  }
  if (fn.seqNr() >= 0) {
    const Frame* outermost = &frame;
    while (outermost->parent != nullptr) {
      outermost = outermost->parent;
    }
    // Of nested ops with the same number the innermost made the node.
    by_sequence_[fn.seqNr()] = static_cast<int32_t>(tape_.forward.size());
    tape_.forward.push_back(
        {.name = frame.name,
         .caller = outermost->name,
         .module = frame.module,
         .named = frame.named,
         .previous_module = before,
         .op = static_cast<int32_t>(tape_.ops.size()),
         .micro_batch = micro_batch_});
  }
}

void OpObserver::note_node(const at::RecordFunction& fn, Frame& frame) {
  tape_.had_backward = true;
  const bool engine = frame.name.starts_with(kEngine);
  frame.node = engine ? frame.name.substr(kEngine.size()) : frame.name;
  frame.sequence = fn.seqNr();
  const auto forward = by_sequence_.find(frame.sequence);
  if (frame.name.ends_with("AccumulateGrad")) {
    if (!engine && !frame.inputs.empty()) {
      const auto& gradient = fn.inputs().front().toTensor();
      tape_.sinks.push_back(
          {.kind = Sink::Kind::gradient,
           .value = frame.inputs.front().value,
           .zeros = lost_ ? share_of_zeros(gradient) : 0});
    }
  } else if (forward != by_sequence_.end()) {
    frame.forward_op = forward->second;
    const auto& op = tape_.forward[static_cast<size_t>(forward->second)];
    frame.module = op.module;
    frame.named = op.named;
  }
}

void OpObserver::end(const at::RecordFunction& fn, Frame& frame) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex_);
  for (const c10::IValue& output : fn.outputs()) {
    if (output.isTensor()) {
      note_output(output.toTensor(), frame);
      look_at_suspect(output.toTensor(), frame);
    } else if (output.isTensorList()) {
      for (const c10::IValue& each : output.toListRef()) {
        note_output(each.toTensor(), frame);
      }
    }
  }
}

void OpObserver::look_at_suspect(const at::Tensor& output, const Frame& frame) {
  const int32_t held =
      frame.suspect >= 0 && is_watched(output) ? held_by(output) : -1;
  if (held < 0 || !tape_.values[static_cast<size_t>(held)].flags.any()) {
    return;
  }
  auto& op = tape_.ops[static_cast<size_t>(frame.suspect)];
  if (!op.evidence.has_value()) {
    look_for_birth(output, frame, op);
  }
}

void OpObserver::note_output(const at::Tensor& tensor, const Frame& frame) {
  if (!is_watched(tensor) || is_known(tensor, frame)) {
    return;
  }
  if (frame.traits.uninitialised) {
    new_value(tensor, -1, /*uninitialised=*/true);
    return;
  }
  if (inner_op_saw_it(tensor, frame)) {
    return;
  }
  const int32_t op = new_op(frame);
  auto& record = tape_.ops[static_cast<size_t>(op)];
  record.output = new_value(tensor, op, /*uninitialised=*/false);
  look_for_birth(tensor, frame, record);
  look_for_lost_values(tensor, frame, record);
}

bool OpObserver::is_known(const at::Tensor& tensor, const Frame& frame) const {
  const int32_t held = held_by(tensor);
  if (held < 0) {
    return false;
  }
  const auto* storage = storage_of(tensor);
  const auto& value = tape_.values[static_cast<size_t>(held)];
  for (const auto& input : frame.inputs) {
    if (input.storage == storage && input.value == held) {
      return !frame.traits.writes; // a view, or the argument itself
    }
  }
  const bool made_inside = static_cast<size_t>(held) >= frame.first_value;
  return made_inside && value.op >= 0 &&
         (frame.is_node || frame.traits.composite);
}

// An op that is more than its inner ops may have written into what they gave,
// so that it has to be read again; but if that made no difference, the inner
// one is the op to name.
bool OpObserver::inner_op_saw_it(const at::Tensor& tensor, const Frame& frame) {
  const int32_t held = held_by(tensor);
  if (held < 0 || static_cast<size_t>(held) < frame.first_value) {
    return false;
  }
  const auto& inner = tape_.values[static_cast<size_t>(held)];
  if (inner.op < 0 || inner.pending >= 0) {
    return false; // memory that the op allocated past the dispatcher
  }
  TapeValue again;
  read_flags(tensor, again);
  return again.pending < 0 && again.flags.any() == inner.flags.any();
}

int32_t OpObserver::new_op(const Frame& frame) {
  const Frame* outermost = &frame;
  while (outermost->parent != nullptr && !outermost->parent->is_node) {
    outermost = outermost->parent;
  }
  TapeOp op{
      .name = frame.name,
      .caller = outermost->name,
      .node = frame.node,
      .module = frame.module,
      .named = frame.named,
      .forward_op = frame.forward_op,
      .micro_batch = micro_batch_,
      .constant_inf = frame.constant_inf,
      .in_backward = !frame.node.empty() ||
                     torch::autograd::get_current_graph_task_id() >= 0,
      .optimizer = tape_.had_backward && !at::GradMode::is_enabled()};
  op.optimizer = op.optimizer && !op.in_backward;
  for (const auto& input : frame.inputs) {
    op.inputs.push_back(input.value);
  }
  tape_.ops.push_back(std::move(op));
  return static_cast<int32_t>(tape_.ops.size()) - 1;
}

} // namespace ampkit::diagnose
