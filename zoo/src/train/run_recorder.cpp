#include "train/run_recorder.h"

#include <utility>

#include <ampkit/io/state_dict.h>

namespace ampkit::zoo {
namespace {

// Every number of `row` but those that only place it.
void add_scalars(
    io::EventFileWriter& events,
    const std::string& group,
    const io::StateDict& row) {
  const auto step = row.integer("step");
  for (const auto& [name, value] : row.entries()) {
    if (const auto* number = std::get_if<double>(&value)) {
      events.add_scalar(group + "/" + name, *number, step);
    }
  }
}

io::StateDict row_of(const StepRecord& r) {
  io::StateDict row;
  row.set("kind", "train");
  row.set("step", r.step);
  row.set("epoch", r.epoch);
  row.set("loss", r.loss);
  row.set("learning_rate", r.learning_rate);
  row.set("scale", r.scale);
  row.set("skipped", r.skipped);
  row.set("skipped_total", r.skipped_total);
  row.set("fault", r.fault);
  row.set("faults_total", r.faults_total);
  if (r.skipped) {
    row.set("why", r.why);
  }
  row.set("grad_norm", r.grad_norm);
  row.set("nan_rate", r.nan_rate);
  row.set("samples_per_second", r.samples_per_second);
  row.set("memory_mb", r.memory_mb);
  return row;
}

io::StateDict row_of(const EvalRecord& r) {
  io::StateDict row;
  row.set("kind", "eval");
  row.set("step", r.step);
  row.set("epoch", r.epoch);
  row.set("loss", r.loss);
  row.set("accuracy", r.accuracy);
  if (r.ema_accuracy) {
    row.set("ema_loss", r.ema_loss.value());
    row.set("ema_accuracy", *r.ema_accuracy);
  }
  row.set("samples", r.samples);
  row.set("seconds", r.seconds);
  return row;
}

} // namespace

RunRecorder::RunRecorder(
    const std::string& folder, bool tensorboard, int64_t first_step)
    : log_(folder + "/metrics.jsonl") {
  log_.truncate_after(first_step);
  if (tensorboard) {
    io::EventFileOptions options;
    if (first_step > 0) {
      options.purge_step = first_step + 1;
    }
    events_ = std::make_unique<io::EventFileWriter>(folder, options);
  }
}

void RunRecorder::record(const StepRecord& record) {
  const auto row = row_of(record);
  log_.append(row);
  if (events_) {
    add_scalars(*events_, "train", row);
    for (const auto& [name, total] :
         {std::pair("train/skipped_total", record.skipped_total),
          std::pair("train/faults_total", record.faults_total)}) {
      events_->add_scalar(name, static_cast<double>(total), record.step);
    }
  }
}

void RunRecorder::record(const EvalRecord& record) {
  const auto row = row_of(record);
  log_.append(row);
  if (events_) {
    add_scalars(*events_, "eval", row);
  }
}

void RunRecorder::flush() {
  log_.flush();
  if (events_) {
    events_->flush();
  }
}

} // namespace ampkit::zoo
