#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "amp/layer_recorder.h"

namespace ampkit {

/// By LayerEvent::Kind.
using PerKind = std::array<double, 3>;

/// What the scaler says of a step.
struct StepOutcome {
  std::optional<bool> skipped; ///< nullopt: there is no scaler
  int64_t streak = 0; ///< skipped steps in a row, this one included
};

/// What a step says of one layer.
struct LayerFinding {
  /// Whether its counters are to change at all.
  bool judged = false;
  bool failed = false;
  bool overflowed = false; ///< failed by overflow
  bool at_once = false; ///< the fail window is already over
  std::string reason; ///< of the failure
  /// Whether 16 bits would hold its values, with a margin.
  bool fits = true;

  at::ScalarType dtype = at::ScalarType::Undefined; // of its last output
  std::array<TensorStatistics, 3> statistics; // by kind
  /// Share of zeros where values have never been in 16 bits; -1: they were.
  PerKind exact_zeros{-1, -1, -1};
};

/// Judges the events of one step. `structural`: shares of zeros that float32
/// had, per layer. The rules stand in docs/precision_controller.md.
std::vector<LayerFinding> judge_step(
    const std::vector<LayerEvent>& events,
    const PrecisionControllerOptions& options,
    const std::vector<std::string>& paths,
    const std::vector<PerKind>& structural,
    const StepOutcome& outcome);

} // namespace ampkit
