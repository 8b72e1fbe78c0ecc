#include "diagnose/op_replay.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string_view>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "diagnose/op_traits.h"

namespace ampkit::diagnose {
namespace {

c10::IValue widened(const c10::IValue& value) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    return tensor.defined() && is_watched_dtype(tensor.scalar_type())
               ? c10::IValue(tensor.detach().to(at::kDouble))
               : value;
  }
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(widened(tensor).toTensor());
    }
    return tensors;
  }
  return value;
}

// The arguments, with any dtype that asks for less taken out.
std::vector<c10::IValue> widened_arguments(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& inputs) {
  std::vector<c10::IValue> stack;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& name = schema.arguments().at(i).name();
    const bool dtype = name.ends_with("dtype") && inputs[i].isInt();
    stack.push_back(
        dtype ? c10::IValue(static_cast<int64_t>(at::kDouble))
              : widened(inputs[i]));
  }
  return stack;
}

void look_at(const at::Tensor& tensor, bool first, Replay& replay) {
  if (!is_watched(tensor)) {
    return;
  }
  const auto summary = summarize(tensor);
  replay.finite = replay.finite && summary.non_finite() == 0;
  replay.amax = std::max(replay.amax, summary.amax());
  if (first) {
    replay.zeros = static_cast<double>(summary.zeros) /
                   static_cast<double>(summary.elements);
  }
}

Replay look_at_all(const std::vector<c10::IValue>& outputs) {
  Replay replay{.finite = true};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].isTensor()) {
      look_at(outputs[i].toTensor(), i == 0, replay);
    } else if (outputs[i].isTensorList()) {
      for (const at::Tensor& tensor : outputs[i].toTensorVector()) {
        look_at(tensor, i == 0, replay);
      }
    }
  }
  return replay;
}

std::optional<std::vector<c10::IValue>> run_again(
    const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs) {
  const auto name = fn.operator_name();
  const auto handle =
      name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  if (!handle || !handle->hasSchema() || handle->schema().is_mutable()) {
    return std::nullopt;
  }
  auto stack = widened_arguments(handle->schema(), inputs);
  handle->callBoxed(stack);
  return stack;
}

} // namespace

bool is_cast(const at::RecordFunction& fn) {
  const auto base = base_name(fn.name());
  return base == "to" || base == "_to_copy" || base == "copy" ||
         base == "_autocast_to_reduced_precision";
}

std::optional<std::vector<c10::IValue>> outputs_in_float64(
    const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs) {
  try {
    return run_again(fn, inputs);
  } catch (const std::exception&) {
    return std::nullopt; // no kernel for float64
  }
}

std::optional<Replay> replay_in_float64(
    const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs) {
  if (is_cast(fn)) {
    // copy_(self, source): what is cast is the last tensor.
    for (auto each = inputs.rbegin(); each != inputs.rend(); ++each) {
      if (each->isTensor() && is_watched(each->toTensor())) {
        return look_at_all({*each});
      }
    }
  }
  const auto outputs = outputs_in_float64(fn, inputs);
  return outputs.has_value() ? std::optional(look_at_all(*outputs))
                             : std::nullopt;
}

} // namespace ampkit::diagnose
