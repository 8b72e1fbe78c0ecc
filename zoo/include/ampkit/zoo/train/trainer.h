#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <ampkit/amp/precision_policy.h>
#include <ampkit/diagnose/replay.h>
#include <ampkit/dist/context.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/zoo/data/image_dataset.h>
#include <ampkit/zoo/models/model.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/records.h>

namespace ampkit::zoo {

/// The images of a run.
struct TrainingData {
  std::shared_ptr<const ImageDataset> train;
  std::shared_ptr<const ImageDataset> eval;
};

/// Opens what [data] names, cut to data.limit and data.eval_limit. Throws
/// DataError if files are missing or damaged.
AMPKIT_API TrainingData open_data(const DataConfig& config);

/// The network of [model] for the channels and classes of `data`, with random
/// weights of train.seed, or those of model.weights. Seeds LibTorch's
/// generators. Throws CheckpointError if the weights do not fit.
AMPKIT_API Model make_model(const RunConfig& config, const TrainingData& data);

/// Whom a Trainer tells what. Each may be empty; all are called from run().
struct TrainerEvents {
  std::function<void(const StepRecord&)> on_step;
  std::function<void(const EvalRecord&)> on_eval;
  /// Now is the time to save state_dict(). `accuracy`: of the evaluation just
  /// done, if there was one.
  std::function<void(std::optional<double> accuracy)> on_checkpoint;
  /// Asked after each step; true ends the run there, after on_checkpoint. With
  /// several ranks, true on any of them ends the run of all a step later.
  std::function<bool()> should_stop;
  /// Where steps that went wrong are saved, as [diagnose] says (see
  /// diagnose::CapsuleRecorder); ranks but the first have folders in it. Empty:
  /// nowhere.
  std::string capsule_folder = {};
  /// What a person should know: that a step was saved.
  std::function<void(const std::string& text)> on_note = nullptr;
  /// Asked before each step; true saves that step.
  std::function<bool()> should_capture = nullptr;
  /// Told at each part of a step what begins: "forward", "backward", "update".
  std::function<void(int64_t step, const char* phase)> on_phase = nullptr;
};

enum class StopReason { finished, stopped };

/// Trains a network in mixed precision: accumulation, loss scaling, clipping,
/// schedule, averaged weights, evaluation, and a state from which training
/// goes on as if it had never stopped.
///
///     const auto config = zoo::load_config("configs/fashion-resnet.toml");
///     const auto data = zoo::open_data(config.data);
///     zoo::Trainer trainer(config, zoo::make_model(config, data), data);
///     trainer.run({.on_eval = [](const zoo::EvalRecord& r) {
///       std::cout << r.accuracy << "\n";
///     }});
///
/// A window of train.accumulate batches makes one step, whose gradient is that
/// of all its samples at once, also where the last batch or window of an epoch
/// is smaller. The schedule and the averaged weights advance on steps that were
/// taken only. The device is waited for once a step.
///
/// With several ranks (`context`) each step's images are split among them, and
/// all ranks have the same weights, losses and records: those that one process
/// would have, but for the order of sums, and for batch norms, which see a
/// rank's images only. Rank 0's running statistics count. All ranks must call
/// run(), evaluate() and load_state_dict() alike.
///
/// Same configuration, data, machine and number of threads and ranks: same
/// weights, bit for bit. Not thread-safe.
class AMPKIT_API Trainer {
 public:
  /// Moves the network to the device and stores its weights as the precision
  /// wants them. Uses [optimizer], [precision], [schedule], [train], [data] and
  /// checkpoint.every_steps of `config`; writes no files.
  ///
  /// Throws ConfigError for values that do not go together, and c10::ValueError
  /// for a precision.policy that cannot be read or names modules that the
  /// network does not have.
  Trainer(
      const RunConfig& config,
      Model model,
      const TrainingData& data,
      std::optional<dist::Context> context = std::nullopt);
  ~Trainer();

  /// Trains from where it stands to the end, or until should_stop(). Once
  /// finished it returns at once. Throws c10::Error, naming the parameters to
  /// blame, if the loss or a gradient was not finite for train.patience steps
  /// in a row, or the loss for precision.max_consecutive_faults.
  StopReason run(const TrainerEvents& events = {});

  /// Evaluates now: loss and accuracy over the whole evaluation set.
  EvalRecord evaluate();

  /// Network, optimizer with masters, scaler, schedule, averaged weights,
  /// random generators and position in the data; on any number of ranks it can
  /// be loaded again on any other. Only rank 0's counts, and random generators
  /// are those of the last on_checkpoint. Tensors are shared: save or
  /// clone them before training on. Waits for the device.
  io::StateDict state_dict() const;

  /// Restores what state_dict() gave for the same configuration. Throws
  /// c10::Error with what does not fit; a part of the state may have been
  /// restored then, so that this Trainer must not run.
  void load_state_dict(const io::StateDict& state);

  /// Does the step of `capsule` again; see open_capsule(), which makes a
  /// Trainer that it fits. Throws CheckpointError, naming its file, if it does
  /// not.
  diagnose::ReplayResult replay(const diagnose::Capsule& capsule);

  /// Optimizer steps so far, skipped ones too.
  int64_t step() const;
  /// Steps of the whole run.
  int64_t total_steps() const;
  int64_t epochs() const;
  bool finished() const;

  /// What precision.policy names, as it was read.
  const PrecisionPolicy& policy() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit::zoo
