#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/step_result.h>
#include <ampkit/diagnose/finding.h>
#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn
namespace torch::jit {
struct Module;
} // namespace torch::jit

namespace ampkit::diagnose {

/// Settings of a Watch.
struct WatchOptions {
  /// Steps from one watched step to the next; >= 1. 1: full mode, every step.
  /// More: sampling mode, in which a step on a device other than the CPU is
  /// not waited for and its finding comes at a later step().
  int64_t interval = 1;
  /// Reported with findings; >= 0.
  int rank = 0;
  /// GradScalerOptions::min_scale of the scaler.
  double scale_floor = 1.0;
  /// Called for each finding, by Step::finish() and Watch::step().
  std::function<void(const Finding&)> on_finding = nullptr;
  /// Leave what is asked of tensors where it is on the CPU too, as in sampling
  /// mode on a GPU. Slow: for tests.
  bool defer_on_cpu = false;
};

/// Sees every op of a training step, forward, backward and update, and says
/// where the first value that is not finite was born. Works for any
/// torch::nn::Module and TorchScript module, with no change to it.
///
///     ampkit::diagnose::Watch watch(*model);
///     for (const auto& batch : loader) {
///       auto step = watch.step();
///       step.input("image", batch.input);
///       ... forward, scaler.scale(loss).backward() ...
///       step.scaled(scaler, scaler.step(optimizer));
///       scaler.update();
///       if (const auto finding = step.finish()) {
///         std::cout << to_string(*finding);
///       }
///     }
///
/// A birth is an op whose result is not finite though its arguments are. It
/// counts if it reached a loss (what backward() is called on, or loss()), the
/// gradient of a parameter, a parameter, or output(); without a backward pass,
/// any result that no other op used. The -inf of a mask is none. Gradients that
/// a scaler handles are counted, not reported: say scaled() before its
/// update().
///
/// Between watched steps nothing is done at all. A watched step reads every
/// result once; docs/diagnose.md has the cost. Parameters and buffers that are
/// registered later have no names. One step at a time a thread.
class AMPKIT_API Watch {
 public:
  /// A step that is watched, or in sampling mode perhaps not, from its
  /// construction to finish(), on the thread that made it and in the backward
  /// passes begun there. Every function may be called at any time before
  /// finish(), and does nothing in a step that is not watched.
  class AMPKIT_API Step {
   public:
    ~Step(); ///< finish(), without what that throws
    Step(Step&& other) noexcept;
    Step& operator=(Step&&) = delete;
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    /// False between the watched steps of sampling mode.
    bool watched() const;

    /// A tensor of the batch: bad values in it are bad data, and dimension 0
    /// counts samples. Before it is used.
    void input(const std::string& name, const at::Tensor& tensor);

    /// What must be finite, where it can't be told from the ops.
    void loss(const at::Tensor& loss);
    void output(const at::Tensor& output);

    /// From now on ops belong to this micro-batch; from 0.
    void micro_batch(int64_t number);

    /// What the scaler did, before scaler.update(). On a GPU get_scale() waits
    /// for the device, which sampling mode puts off.
    void scaled(const GradScaler& scaler, const StepResult& result);

    /// Ends the step; the finding of this step, or, in sampling mode on a GPU,
    /// none yet. Once; later calls return the same.
    std::optional<Finding> finish();

   private:
    friend class Watch;
    struct State;
    explicit Step(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// Throws c10::ValueError, naming the field, if an option is out of range.
  explicit Watch(
      const torch::nn::Module& module, const WatchOptions& options = {});
  explicit Watch(
      const torch::jit::Module& module, const WatchOptions& options = {});
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  Watch(Watch&&) = delete;
  Watch& operator=(Watch&&) = delete;

  /// Begins the next step; they count from 0, watched or not, unless `number`
  /// says otherwise. The Watch must outlive it. Throws c10::Error if this
  /// thread has one that has not ended.
  [[nodiscard]] Step step();
  [[nodiscard]] Step step(int64_t number);

  /// All so far. Waits for what is still on a device.
  const std::vector<Finding>& findings();

  /// Steps that were watched, and of those the ones in which gradients
  /// overflowed as a scaler expects.
  int64_t watched_steps() const;
  int64_t handled_overflows() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit::diagnose
