#include <ampkit/zoo/train/run.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include <ATen/Parallel.h>
#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>
#include <ampkit/io/checkpoint_directory.h>
#include <ampkit/zoo/report/html_report.h>
#include <ampkit/zoo/report/machine.h>

#include "train/ranks.h"
#include "train/run_flight.h"
#include "train/run_folder.h"
#include "train/run_recorder.h"
#include "train/trainer_setup.h"

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;

FolderUse folder_use(const RunOptions& options) {
  if (options.resume) {
    return FolderUse::resume;
  }
  return options.overwrite ? FolderUse::overwrite : FolderUse::fresh;
}

std::string recorded_policy(const RunConfig& config) {
  return (fs::path(run_folder(config)) / "precision_policy.toml").string();
}

// A resumed run goes on under the policy that it began with, whatever became of
// the file that it was read from.
RunConfig trainer_config(const RunConfig& config, const RunOptions& options) {
  auto result = config;
  if (options.resume && fs::exists(recorded_policy(config))) {
    result.precision.policy = recorded_policy(config);
  }
  return result;
}

/// A run between its first and its last moment.
class Run {
 public:
  Run(const RunConfig& config, const RunOptions& options)
      : config_(config),
        options_(options),
        data_(open_data(config.data)),
        model_(make_model(config, data_)),
        trainer_(
            trainer_config(config, options), model_, data_, options.context) {
    if (writes()) {
      open_folder();
    }
    if (options.resume) {
      resume();
    }
    if (writes()) {
      write_beginning();
    }
  }

  RunResult go() {
    const auto begin = std::chrono::steady_clock::now();
    if (writes() && options_.on_start) {
      options_.on_start(trainer_, model_);
    }
    RunResult result{.folder = run_folder(config_)};
    RunFlight flight(
        config_,
        options_.context ? static_cast<int>(options_.context->rank()) : 0);
    auto all_events = events(result);
    flight.listen(all_events);
    result.reason = trainer_.run(all_events);
    flight.end(result.reason);
    if (writes()) {
      recorder_->flush();
    }
    const std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - begin;
    result.step = trainer_.step();
    result.seconds = passed.count();
    if (writes() && config_.output.report &&
        result.reason == StopReason::finished) {
      const auto path = default_report_path(folder_->path());
      write_html_report(folder_->path(), path);
      result.report = path.string();
    }
    if (options_.context) {
      options_.context->barrier(); // nobody leaves while others need it
    }
    return result;
  }

 private:
  bool writes() const {
    return !options_.context || options_.context->rank() == 0;
  }
  void open_folder();
  void write_beginning();
  void resume();
  std::optional<io::LoadedCheckpoint> find_checkpoint();
  void restore(const io::LoadedCheckpoint& loaded);
  std::string changed_keys() const;
  void note_policy() const;
  TrainerEvents events(RunResult& result);
  void note(const std::string& text) const {
    if (writes() && options_.on_note) {
      options_.on_note(text);
    }
  }

  const RunConfig& config_;
  const RunOptions& options_;
  TrainingData data_;
  Model model_;
  Trainer trainer_;
  // Of rank 0.
  std::optional<RunFolder> folder_;
  std::optional<io::CheckpointDirectory> checkpoints_;
  std::unique_ptr<RunRecorder> recorder_;
};

void Run::open_folder() {
  folder_.emplace(run_folder(config_), folder_use(options_));
  checkpoints_.emplace(
      folder_->file("checkpoints"),
      io::CheckpointDirectoryOptions{
          .keep_last = config_.checkpoint.keep_last});
}

void Run::write_beginning() {
  if (options_.resume) {
    note_policy();
  }
  folder_->write("config.toml", to_toml(config_));
  folder_->write("precision_policy.toml", to_toml(trainer_.policy()));
  folder_->write("machine.json", collect_machine().to_json() + "\n");
  recorder_ = std::make_unique<RunRecorder>(
      folder_->path().string(), config_.output.tensorboard, trainer_.step());
}

// The one that rank 0 chose; none: there is none yet.
std::optional<io::LoadedCheckpoint> Run::find_checkpoint() {
  std::optional<io::LoadedCheckpoint> loaded;
  if (writes()) {
    loaded = checkpoints_->load_latest_intact();
  }
  if (!options_.context) {
    return loaded;
  }
  const auto path =
      text_of_rank_0(*options_.context, loaded ? loaded->file.path : "");
  if (!writes() && !path.empty()) {
    AMPKIT_CHECK_CHECKPOINT(
        fs::exists(path),
        "rank ",
        options_.context->rank(),
        " does not see ",
        path,
        ", which rank 0 resumes from; output.dir must be on a file system that "
        "all ranks share, and all must run in the same folder");
    loaded.emplace();
    loaded->state = io::load_checkpoint(path).state;
    loaded->file.path = path;
  }
  return loaded;
}

void Run::resume() {
  const auto loaded = find_checkpoint();
  if (!loaded) {
    note(
        "no checkpoint in " + run_folder(config_) +
        "/checkpoints yet: from the beginning");
    return;
  }
  for (const auto& message : loaded->passed_over) {
    note("passed over a damaged checkpoint: " + message);
  }
  restore(*loaded);
  if (!writes()) {
    return;
  }
  // Later ones are damaged, or this run would have begun there.
  checkpoints_->remove_after(loaded->file.step);
  const auto changed = changed_keys();
  if (!changed.empty()) {
    note("the configuration changed since the run began:" + changed);
  }
  note(c10::str(
      "resumed at step ", trainer_.step(), " from ", loaded->file.path));
}

void Run::restore(const io::LoadedCheckpoint& loaded) {
  try {
    trainer_.load_state_dict(loaded.state);
  } catch (const c10::Error& error) {
    const auto changed = changed_keys();
    AMPKIT_CHECK_CHECKPOINT(
        false,
        loaded.file.path,
        " does not fit this run: ",
        error.msg(),
        changed.empty() ? ""
                        : "\nthe configuration changed since it was saved:",
        changed);
  }
}

void Run::note_policy() const {
  bool same = false;
  try {
    same = precision_policy(config_.precision) == trainer_.policy();
  } catch (const c10::ValueError&) {
    same = false; // the file is gone or changed beyond reading
  }
  if (!same) {
    note(
        "precision.policy is no longer what the run began with; it goes on "
        "with " +
        recorded_policy(config_));
  }
}

// Each on a line of its own. A configuration that no longer reads says nothing.
std::string Run::changed_keys() const {
  std::string text;
  try {
    const auto before = load_config(run_folder(config_) + "/config.toml");
    for (const auto& difference : differences(before, config_)) {
      text += "\n  " + difference;
    }
  } catch (const ConfigError& error) {
    text = "\n  " + error.msg();
  }
  return text;
}

TrainerEvents Run::events(RunResult& result) {
  if (!writes()) {
    return {
        .on_eval = [&result](const auto& record) { result.last_eval = record; },
        .should_stop = options_.should_stop,
        .capsule_folder = run_folder(config_) + "/capsules",
        .should_capture = options_.should_capture};
  }
  return {
      .on_step =
          [this](const StepRecord& record) {
            recorder_->record(record);
            if (options_.on_step) {
              options_.on_step(record);
            }
          },
      .on_eval =
          [this, &result](const EvalRecord& record) {
            recorder_->record(record);
            result.last_eval = record;
            if (options_.on_eval) {
              options_.on_eval(record);
            }
          },
      .on_checkpoint =
          [this](std::optional<double> accuracy) {
            recorder_->flush();
            checkpoints_->save(
                trainer_.step(), trainer_.state_dict(), accuracy);
          },
      .should_stop = options_.should_stop,
      .capsule_folder = folder_->file("capsules"),
      .on_note =
          [this](const std::string& text) {
            note(text);
            note(
                "`ampkit diagnose " + run_folder(config_) +
                "` says where it went wrong");
          },
      .should_capture = options_.should_capture};
}

} // namespace

std::string run_folder(const RunConfig& config) {
  return (fs::path(config.output.dir) / config.output.name).string();
}

RunResult train_run(const RunConfig& config, const RunOptions& options) {
  if (config.train.threads > 0) {
    at::set_num_threads(static_cast<int>(config.train.threads));
  }
  return Run(config, options).go();
}

} // namespace ampkit::zoo
