#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ampkit/diagnose/finding.h>

#include "diagnose/named_tensors.h"
#include "diagnose/origin.h"
#include "diagnose/tape.h"

namespace ampkit::diagnose {

/// What is known of a step beside its ops.
struct StepContext {
  int64_t step = 0;
  int rank = 0;
  std::vector<std::string> inputs; ///< names, by number
  std::optional<double> scale; ///< of a scaler that was there
  double scale_floor = 1;
  int32_t damaged = -1; ///< a named tensor that went bad with no op seen
  int32_t grown = -1; ///< the parameter that grew most since the first step
  double growth = 1; ///< and by how much
};

/// The finding of a resolved tape; none for a healthy step.
std::optional<Finding> judge(
    const Tape& tape, const NamedTensors& names, const StepContext& context);

/// Fills in op, module, direction and numbers of an origin.
Finding describe_origin(
    const Tape& tape, const NamedTensors& names, const Origin& origin);

} // namespace ampkit::diagnose
