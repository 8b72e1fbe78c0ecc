#include "train/run_flight.h"

#include <string_view>
#include <utility>

#include <ampkit/zoo/train/run.h>

namespace ampkit::zoo {
namespace {

diagnose::FlightEntry entry_of(const StepRecord& record) {
  return {
      .step = record.step,
      .loss = record.loss,
      .scale = record.scale,
      .grad_norm = record.grad_norm,
      .grad_max = record.grad_max,
      .bad_values = record.bad_values,
      .skipped = record.skipped,
      .fault = record.fault,
      .verdict = record.why};
}

} // namespace

RunFlight::RunFlight(const RunConfig& config, int rank)
    : steps_(config.diagnose.flight_steps), rank_(rank) {
  if (steps_ > 0) {
    path_ = run_folder(config) +
            (rank == 0 ? "/flight.bin"
                       : "/flight-rank-" + std::to_string(rank) + ".bin");
  }
}

void RunFlight::open() {
  if (!recorder_ && !path_.empty()) {
    recorder_ = std::make_unique<diagnose::FlightRecorder>(
        path_, diagnose::FlightRecorderOptions{steps_, rank_});
  }
}

void RunFlight::listen(TrainerEvents& events) {
  events.on_phase = [this](int64_t step, const char* phase) {
    // Rank 0 makes the folder of a run, and refuses one with anything in it.
    // Behind the first backward pass, in which ranks meet, it is there.
    if (rank_ == 0 || std::string_view(phase) == "update") {
      open();
    }
    if (recorder_) {
      recorder_->begin(step, phase);
    }
  };
  events.on_step =
      [this, next = std::move(events.on_step)](const StepRecord& record) {
        if (recorder_) {
          recorder_->record(entry_of(record));
        }
        if (next) {
          next(record);
        }
      };
}

void RunFlight::end(StopReason reason) {
  if (recorder_) {
    recorder_->end(
        reason == StopReason::finished ? "finished" : "stopped as asked");
  }
}

} // namespace ampkit::zoo
