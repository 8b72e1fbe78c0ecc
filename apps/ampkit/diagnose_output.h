#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ampkit/diagnose/capsule.h>
#include <ampkit/diagnose/flight_recorder.h>
#include <ampkit/diagnose/replay.h>

namespace ampkit::app {

/// What `ampkit diagnose` has to say.
struct Diagnosis {
  /// Of a run: its last steps, if it kept a flight recorder.
  std::optional<diagnose::FlightLog> flight;
  std::vector<std::string> capsules; ///< all there are
  /// The one that was replayed, and what came of that.
  std::optional<diagnose::Capsule> capsule;
  std::optional<diagnose::ReplayResult> replay;
};

std::string text_of(const Diagnosis& diagnosis);

/// Numbers that JSON does not know are the texts "NaN", "Infinity" and
/// "-Infinity".
std::string json_of(const Diagnosis& diagnosis);

} // namespace ampkit::app
