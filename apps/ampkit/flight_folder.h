#pragma once

#include <string>

namespace ampkit::app {

/// A folder for the time of `ampkit run`, named by AMPKIT_FLIGHT_DIR: each
/// diagnose::FlightRecorder of a rank leaves a link there to its file. A folder
/// that the variable names already is used, and stays.
class FlightFolder {
 public:
  FlightFolder();
  ~FlightFolder();
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

  /// The last steps of `rank`, if it kept a flight recorder; else "".
  std::string last_steps(int rank) const;

 private:
  std::string path_; // empty: none could be made
  bool own_ = false;
};

} // namespace ampkit::app
