#pragma once

#include <optional>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include "diagnose/tape.h"

namespace ampkit::diagnose {

/// Runs the op of `fn` once more on `inputs` in float64, so that what a dtype
/// does not hold can be told from what is wrong in any. None if the op has no
/// float64 kernel or cannot be run again. A cast is answered without a run.
/// Call below autograd, with records off. Waits for the device.
std::optional<Replay> replay_in_float64(
    const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs);

/// Whether the op does nothing but change a dtype: "aten::to".
bool is_cast(const at::RecordFunction& fn);

/// The outputs of the same run, or none.
std::optional<std::vector<c10::IValue>> outputs_in_float64(
    const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs);

} // namespace ampkit::diagnose
