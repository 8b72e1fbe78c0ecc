#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/step_result.h>
#include <ampkit/diagnose/capsule.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::diagnose {

/// Settings of a CapsuleRecorder.
struct CapsuleOptions {
  /// Capsules that are kept, the latest; >= 1.
  int64_t keep_last = 3;
  /// Save the step that is skipped as the so-manieth in a row; 0: never.
  int64_t skips = 10;
  /// Bytes that all capsules together may take; > 0. Fewer than keep_last are
  /// kept if they are large; one that is larger by itself is not saved.
  int64_t max_bytes = int64_t{4} << 30;
  /// Of this process, and how many train together; each saves steps that its
  /// own loss spoils, or all do, in folders of their own.
  int rank = 0;
  int world_size = 1;
  /// See Capsule.
  std::string config = {};
  std::string policy = {};
  std::string faults = {};
  /// Told what a person should know: what was saved, or why it was not.
  std::function<void(const std::string& text)> on_note = nullptr;
};

/// Saves the first step of a row whose loss is not finite, the step that is
/// skipped as the so-manieth in a row, or one that is asked for, as a Capsule.
///
///     ampkit::diagnose::CapsuleRecorder capsules(
///         "run/capsules", *model, [&] { return run.state_dict(); });
///     for (int64_t i = 0; i < steps; ++i) {
///       capsules.begin(i);
///       io::StateDict batch;
///       batch.set("input", input);
///       batch.set("target", target);
///       capsules.batch(batch);
///       ... forward, scaler.scale(loss).backward() ...
///       const auto result = scaler.step(optimizer);
///       capsules.end(loss, result);
///       scaler.update();
///     }
///
/// It works because a skipped step leaves weights and optimizer as they were;
/// random generators and buffers, which a forward pass changes, are copied at
/// begin(): that is all it costs while all is well. In a loop without scaler,
/// call end(loss) before the optimizer's step.
///
/// Files are those of an io::CheckpointDirectory: complete or not there,
/// whatever ends the process. Not thread-safe.
class AMPKIT_API CapsuleRecorder {
 public:
  /// `state`: all that the next step depends on, by any names, but "rng" with
  /// io::rng_state() if the generators are in it; io::TrainingState gives such
  /// a one. Its tensors may share memory with what trains. `folder` is created
  /// by the first capsule. Keeps a reference to `model`. Throws
  /// c10::ValueError, naming the field, if an option is out of range.
  CapsuleRecorder(
      std::string folder,
      const torch::nn::Module& model,
      std::function<io::StateDict()> state,
      const CapsuleOptions& options = {});
  ~CapsuleRecorder();
  CapsuleRecorder(const CapsuleRecorder&) = delete;
  CapsuleRecorder& operator=(const CapsuleRecorder&) = delete;
  CapsuleRecorder(CapsuleRecorder&&) = delete;
  CapsuleRecorder& operator=(CapsuleRecorder&&) = delete;

  /// The next step to begin is saved whatever comes of it; it is copied as a
  /// whole when it begins. From any thread, or a signal handler.
  void ask() noexcept;

  /// Before anything of the step, its number >= 0.
  void begin(int64_t step);

  /// The tensors of the next micro-batch. Nothing is copied: don't change them
  /// before end().
  void batch(const io::StateDict& tensors);

  /// After the scaler's step() and before its update(). Waits for the device.
  /// Returns the path of the capsule, if one was saved. Without a begin()
  /// before, throws c10::Error. That a capsule can't be written (a full disk)
  /// is told to on_note, and no reason to end a run.
  std::optional<std::string> end(
      const at::Tensor& loss, const StepResult& result);

  /// Before the optimizer's step, in a loop whose steps nothing skips: only the
  /// loss is looked at.
  std::optional<std::string> end(const at::Tensor& loss);

  /// Saved so far.
  int64_t saved() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit::diagnose
