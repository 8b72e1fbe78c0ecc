#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ampkit/io/event_file.h>
#include <ampkit/io/json_lines.h>
#include <ampkit/zoo/train/records.h>

namespace ampkit::zoo {

/// Where a run's figures go: metrics.jsonl and a TensorBoard event file.
class RunRecorder {
 public:
  /// Appends to what `folder` holds, after removing what comes after
  /// `first_step`.
  RunRecorder(const std::string& folder, bool tensorboard, int64_t first_step);

  void record(const StepRecord& record);
  void record(const EvalRecord& record);

  /// Onto the disk, so that a checkpoint never knows of more than the log.
  void flush();

 private:
  io::JsonLinesWriter log_;
  std::unique_ptr<io::EventFileWriter> events_;
};

} // namespace ampkit::zoo
