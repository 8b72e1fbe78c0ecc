#pragma once

#include <memory>
#include <string>

#include <ampkit/diagnose/flight_recorder.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/trainer.h>

namespace ampkit::zoo {

/// The flight recorder of a run: flight.bin in its folder, and for other ranks
/// than the first flight-rank-<n>.bin.
class RunFlight {
 public:
  RunFlight(const RunConfig& config, int rank);

  /// From now on, while this lives, what `events` tell is recorded too.
  void listen(TrainerEvents& events);

  void end(StopReason reason);

 private:
  void open();

  std::string path_; // empty: none is wanted
  int64_t steps_;
  int rank_;
  std::unique_ptr<diagnose::FlightRecorder> recorder_; // null: not yet
};

} // namespace ampkit::zoo
