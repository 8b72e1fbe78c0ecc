#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ampkit/export.h>

namespace ampkit::diagnose {

/// What a FlightRecorder keeps of a step. A number that is not known is NaN.
struct AMPKIT_API FlightEntry {
  int64_t step = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double scale = std::numeric_limits<double>::quiet_NaN();
  /// Of the unscaled gradients, before clipping.
  double grad_norm = std::numeric_limits<double>::quiet_NaN();
  double grad_max = std::numeric_limits<double>::quiet_NaN();
  /// Elements of the gradients that are inf or NaN; -1: not known.
  int64_t bad_values = -1;
  bool skipped = false;
  bool fault = false; ///< skipped for what no loss scale cures
  /// What became of the step, or the verdict on it; the first 175 bytes are
  /// kept.
  std::string verdict;
  double time = 0; ///< seconds since 1970; record() sets it
};

/// Settings of a FlightRecorder.
struct FlightRecorderOptions {
  /// Steps that are kept; in [1, 1000000]. The file has 256 bytes for each.
  int64_t capacity = 256;
  /// Of this process; -1: from the environment variable RANK, else 0.
  int rank = -1;
};

/// Keeps the last steps of a run in a file that survives the process, however
/// that ends: it is mapped into memory, so that what was recorded is the
/// system's to write, SIGKILL or not. (A power cut may lose the last seconds.)
///
///     ampkit::diagnose::FlightRecorder flight("run/flight.bin");
///     for (...) {
///       flight.begin(i, "forward");
///       ...
///       flight.begin(i, "backward");
///       ...
///       flight.record({.step = i, .loss = loss.item<double>()});
///     }
///     flight.end("finished");
///
/// begin() and record() cost a copy of 256 bytes: no system call, no wait. A
/// file that is there already becomes "<path>.previous". Under `ampkit run`,
/// which sets AMPKIT_FLIGHT_DIR, a link in that folder leads to the file, so
/// that the last steps of a rank that dies are printed. Not thread-safe.
class AMPKIT_API FlightRecorder {
 public:
  /// Reserves the file's space. Throws c10::ValueError if an option is out of
  /// range, ampkit::CheckpointError if the file cannot be made.
  explicit FlightRecorder(
      const std::string& path, const FlightRecorderOptions& options = {});
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  FlightRecorder(FlightRecorder&&) = delete;
  FlightRecorder& operator=(FlightRecorder&&) = delete;

  /// Says what the process does now: a step and a part of it.
  void begin(int64_t step, std::string_view phase);

  /// Adds a step that is over; the oldest goes when all places are taken.
  void record(const FlightEntry& entry);

  /// Says that the run came to its end, and how. What is not ended was lost.
  void end(std::string_view how);

  const std::string& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What a file of a FlightRecorder holds.
struct AMPKIT_API FlightLog {
  int rank = 0;
  int64_t process = 0;
  std::string host;
  double started = 0; ///< seconds since 1970
  std::vector<FlightEntry> entries; ///< by the order of record()
  int64_t recorded = 0; ///< steps ever recorded
  /// What begin() said last; a step of -1: nothing.
  int64_t current_step = -1;
  std::string phase;
  double phase_time = 0;
  /// What end() said; none: the process ended without it, or still runs.
  std::optional<std::string> ended;
  /// The process ended in the middle of record(); that step is not among them.
  bool torn = false;
};

/// Reads the file of a FlightRecorder, of a process that lives or not.
///
/// Throws ampkit::CheckpointError, naming the file and the byte, if it cannot
/// be read, is none, is of a later version, is cut short, or is damaged. The
/// record that a killed process left unfinished is no damage: see torn.
AMPKIT_API FlightLog read_flight(const std::string& path);

/// A few lines for people: what it did last, and a table of the last `steps`
/// steps.
AMPKIT_API std::string to_string(const FlightLog& log, int64_t steps = 10);

/// to_string() of the file at `path`; what is wrong with it, if it cannot be
/// read: what is printed when a rank has died must not fail.
AMPKIT_API std::string describe_flight(
    const std::string& path, int64_t steps = 10);

/// Path of the link that a FlightRecorder of `rank` puts into the folder that
/// AMPKIT_FLIGHT_DIR names.
AMPKIT_API std::string flight_link(const std::string& folder, int rank);

} // namespace ampkit::diagnose
