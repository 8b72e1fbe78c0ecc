#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <ampkit/dist/context.h>
#include <ampkit/export.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/trainer.h>

namespace ampkit::zoo {

/// How train_run() treats the folder, and whom it tells what.
struct RunOptions {
  /// Go on from the latest intact checkpoint of the folder; from the beginning
  /// if there is none yet.
  bool resume = false;
  /// Delete the files of an earlier run of that folder first.
  bool overwrite = false;
  /// Called before the first step with what will run.
  std::function<void(const Trainer&, const Model&)> on_start;
  /// After what the run itself writes.
  std::function<void(const StepRecord&)> on_step;
  std::function<void(const EvalRecord&)> on_eval;
  /// Asked after each step; true saves and ends the run.
  std::function<bool()> should_stop;
  /// Asked before each step; true saves that step as a capsule.
  std::function<bool()> should_capture = nullptr;
  /// What a person should know: "resumed at step 120", ...
  std::function<void(const std::string&)> on_note;
  /// This process among others that call train_run() too, each with the same
  /// configuration. Rank 0 writes the folder and is the only one whose
  /// on_start, on_step, on_eval and on_note are called; output.dir must be on a
  /// file system that all of them see.
  std::optional<dist::Context> context = std::nullopt;
};

/// How a run ended.
struct RunResult {
  StopReason reason = StopReason::finished;
  std::string folder;
  int64_t step = 0;
  /// Training and evaluation, of this process.
  double seconds = 0;
  /// Of the last evaluation of this process, if there was one.
  std::optional<EvalRecord> last_eval;
  /// Path of the report; empty if this process wrote none.
  std::string report;
};

/// Where a configuration's run lies: <output.dir>/<output.name>.
AMPKIT_API std::string run_folder(const RunConfig& config);

/// Trains as `config` says and keeps everything in the run's folder:
///
///     config.toml           every key, as it was in force
///     machine.json          what it ran on
///     metrics.jsonl         a line for each step and each evaluation
///     events.out.tfevents.* the same for TensorBoard
///     checkpoints/          see io::CheckpointDirectory
///     flight.bin            the last steps; see diagnose::FlightRecorder
///     capsules/             steps that went wrong; see zoo::open_capsule()
///     report.html           at the end
///
/// A process that is killed at any moment and resumed ends in the same weights,
/// bit for bit, and the same metrics.jsonl apart from times and memory, as one
/// that was not; on another number of ranks, the same but for the order of
/// sums. Only one run at a time uses a folder. Sets LibTorch's number of
/// threads if train.threads says so.
///
/// Throws ConfigError if the folder holds a run already (unless resume or
/// overwrite) or is no run's, CheckpointError if its checkpoints are damaged or
/// of another configuration, and what open_data(), make_model() and
/// Trainer::run() throw.
AMPKIT_API RunResult
train_run(const RunConfig& config, const RunOptions& options = {});

} // namespace ampkit::zoo
