#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::io {

enum class BestMetric { kHighest, kLowest };

/// Settings of a CheckpointDirectory.
struct CheckpointDirectoryOptions {
  /// How many of the latest checkpoints to keep; >= 1.
  int64_t keep_last = 3;
  /// Which metric is the best; that checkpoint is kept besides.
  BestMetric best = BestMetric::kHighest;
};

/// One checkpoint file of a directory.
struct CheckpointFile {
  std::string path;
  int64_t step = 0;
  /// What was given to save(); none if the header is damaged.
  std::optional<double> metric;
  /// What is wrong with the header; empty if it is sound.
  std::string damage;
};

/// A state that was loaded from a directory.
struct LoadedCheckpoint {
  StateDict state;
  CheckpointFile file;
  /// Messages about later checkpoints that were passed over as damaged.
  std::vector<std::string> passed_over;
};

/// The checkpoints of one run: files "step-<step>.safetensors" in a directory,
/// of which the last few and the best are kept.
///
///     io::CheckpointDirectory checkpoints("run/checkpoints", {.keep_last =
///     3}); if (auto loaded = checkpoints.load_latest()) {
///       checkpoints.remove_after(loaded->file.step);
///       ...
///     }
///     checkpoints.save(step, state, accuracy);
///
/// A process that is killed at any moment leaves the earlier checkpoints as
/// they were. One process writes to a directory; others may read. Not
/// thread-safe. Errors about files are ampkit::CheckpointError.
class AMPKIT_API CheckpointDirectory {
 public:
  /// Creates the directory (and its parents) if it is missing, and removes what
  /// killed writers left there. Throws c10::ValueError if keep_last < 1.
  explicit CheckpointDirectory(
      std::string path, const CheckpointDirectoryOptions& options = {});

  /// Saves `state` (see save_checkpoint()), then removes those checkpoints
  /// that are neither among the last `keep_last` nor the best. A checkpoint of
  /// the same step is replaced. Returns the path of the file.
  ///
  /// `step` >= 0. Throws c10::Error, changing nothing, if a checkpoint of a
  /// later step is there: see remove_after(). If writing fails, the checkpoints
  /// that were there still are. A NaN metric is never the best.
  std::string save(
      int64_t step,
      const StateDict& state,
      std::optional<double> metric = std::nullopt);

  /// All checkpoints, by rising step. Reads their headers.
  std::vector<CheckpointFile> list() const;

  /// The one with the largest step, damaged or not; none in an empty directory.
  std::optional<CheckpointFile> latest() const;

  /// The one with the best metric, the later one among equals; none if no
  /// checkpoint has a metric. Throws if a header is damaged, for then the best
  /// is not known.
  std::optional<CheckpointFile> best() const;

  /// Loads latest(); none in an empty directory. Throws if it is damaged.
  std::optional<LoadedCheckpoint> load_latest() const;

  /// Loads the latest checkpoint that is intact, passing over damaged ones with
  /// a warning for each (also returned). Throws, naming all of them, if there
  /// are checkpoints and none is intact.
  std::optional<LoadedCheckpoint> load_latest_intact() const;

  /// Loads best(); none where best() is none. Throws if it is damaged.
  std::optional<LoadedCheckpoint> load_best() const;

  /// Removes the checkpoints of steps after `step`: what a run does that goes
  /// on from an earlier point than the latest.
  void remove_after(int64_t step);

  const std::string& path() const { return path_; }

 private:
  std::string path_of(int64_t step) const;
  void remove_old() const;

  std::string path_;
  CheckpointDirectoryOptions options_;
};

} // namespace ampkit::io
