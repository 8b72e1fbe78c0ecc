#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/grad_scaler_options.h>
#include <ampkit/amp/precision.h>
#include <ampkit/amp/step_result.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace torch::nn {
class Module;
} // namespace torch::nn
namespace torch::optim {
class Optimizer;
} // namespace torch::optim

namespace ampkit {

/// Keeps small fp16 gradients above the underflow limit by scaling the loss,
/// and skips the optimizer steps whose gradients overflowed.
///
///     {
///       ampkit::Autocast autocast(device, precision);
///       loss = torch::mse_loss(model->forward(x), y);
///     }
///     scaler.scale(loss).backward();
///     schedule.step(scaler.step(optimizer, {.max_norm = 1.0}));
///     scaler.update();
///     optimizer.zero_grad();
///
/// Optimizers of ampkit unscale, check, clip and step in two passes over
/// memory, and nothing waits for the device. Any other torch::optim::Optimizer
/// works too, in separate passes and with one wait in step().
///
/// The scale lives on the device of the first loss. Not thread-safe. Data
/// parallel: call unscale_() and step() on all-reduced gradients, so that every
/// rank skips the same step.
///
/// Several losses: scale() each; where they share gradients they share a scale.
/// A fault of one skips every step() until update(). Several optimizers: step()
/// decides each for itself, step_all_or_none() together; update() once.
///
/// Differs from torch.amp.GradScaler, which is what the tests compare it with,
/// in: faults (GradScalerOptions) and limits, unless torch_exact; a 16-bit loss
/// is scaled in FP32; the unscaled gradients, not the scaled ones, are what
/// must be finite; bf16 gradients work on every device.
///
/// Source: https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
class AMPKIT_API GradScaler {
 public:
  using Optimizers =
      std::vector<std::reference_wrapper<torch::optim::Optimizer>>;

  /// Throws c10::ValueError, naming the field, if an option is out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Enabled only if `precision` scales its loss.
  explicit GradScaler(
      const Precision& precision, const GradScalerOptions& options = {});

  ~GradScaler();
  GradScaler(GradScaler&& other) noexcept;
  GradScaler& operator=(GradScaler&& other) noexcept;

  /// Lets messages and StepResults name the parameters of `module` instead of
  /// counting them, and clip_grad_norm_() tell from the first step on that a
  /// gradient is still scaled. Keeps no reference to it.
  void name_parameters(const torch::nn::Module& module);

  /// Returns `loss` * scale in FP32 (FP64 for an FP64 loss). `loss`: any shape,
  /// floating point. One that is inf or NaN is a fault: until update() or
  /// abandon() every step is skipped. Does not wait for the device.
  at::Tensor scale(const at::Tensor& loss);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& losses);

  /// Divides every gradient of `optimizer` by the scale, in place, and records
  /// whether any element is inf or NaN. Needed only if gradients are looked at
  /// or changed before step(). Undefined gradients are passed over. Does not
  /// wait for the device.
  ///
  /// Throws c10::Error, changing nothing, if called twice between update()s or
  /// after step(), before any scale(), or if a gradient is fp16 (it would lose
  /// what scaling saved: let step() unscale it), FP8 or complex.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps `optimizer` unless the loss or a gradient is inf or NaN; unscales,
  /// in a way that leaves ampkit's optimizers' gradients unwritten, if that was
  /// not done. Sparse gradients go to optimizers that take them.
  ///
  /// Throws c10::Error, changing nothing (but for what a closure did), if
  /// called twice between update()s, before any scale(), for a
  /// torch::optim::LBFGS (it runs its closure many times a step and compares
  /// losses, which a skip in between would spoil), if no parameter has a
  /// gradient, on an FP8 or complex gradient, or, for an optimizer that is not
  /// ampkit's, on an fp16 one.
  StepResult step(
      torch::optim::Optimizer& optimizer, const StepOptions& options = {});

  /// As if `optimizers` were one with all their parameters: all step, or, if a
  /// gradient of any is inf or NaN, none; options.max_norm is for the norm over
  /// all. Each counts as a step. Throws as step() does, and
  /// c10::ValueError if one is listed twice or there are none.
  StepResult step_all_or_none(
      const Optimizers& optimizers, const StepOptions& options = {});

  /// Grows or backs off the scale. Once per iteration, after every step().
  ///
  /// Throws c10::Error if no optimizer was unscaled or stepped since the last.
  /// Also, when all is done, if the iterations skipped in a row reach a limit
  /// of the options, with the reason and the first parameters to blame. On
  /// devices other than the CPU that comes an iteration late, or as many as
  /// the host is ahead, since nothing waits for the counts.
  void update();

  /// Sets the scale to `new_scale` (finite, in [min_scale, max_scale]) instead.
  void update(double new_scale);

  /// Forgets the iteration: faults, and what unscale_() and step() recorded,
  /// since the last update(). For a loop that gives up after scale().
  void abandon();

  /// The current scale; 1 if disabled. Synchronises with the device.
  double get_scale() const;

  double get_growth_factor() const;
  double get_backoff_factor() const;
  int64_t get_growth_interval() const;
  bool is_enabled() const;

  /// step() calls that changed the parameters, and that did not; of the latter,
  /// those that were skipped for a fault. Since the beginning, before a resume
  /// too. Synchronise with the device.
  int64_t steps_taken() const;
  int64_t steps_skipped() const;
  int64_t faults() const;

  /// Under torch.amp.GradScaler's keys: scale, growth_factor, backoff_factor,
  /// growth_interval, _growth_tracker; unless torch_exact, also
  /// _hysteresis_tracker and the counts. Empty if disabled; only the counts if
  /// checking without scaling. torch.amp.GradScaler loads it. Synchronises.
  io::StateDict state_dict() const;

  /// Takes a state_dict() of this class or torch.amp.GradScaler's entries, in
  /// which hysteresis and counts are new, before or after the first scale(). A
  /// disabled scaler ignores it. Throws c10::Error, changing nothing, if an
  /// entry is missing or out of range, or if the state is that of a disabled
  /// scaler. A scale outside [min_scale, max_scale] is moved to the nearer
  /// limit.
  void load_state_dict(const io::StateDict& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit
