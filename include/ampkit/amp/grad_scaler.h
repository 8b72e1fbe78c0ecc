#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

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

/// Settings of a GradScaler; the first four and their defaults are those of
/// torch.amp.GradScaler.
struct GradScalerOptions {
  /// Loss multiplier of the first step; finite and > 0.
  double init_scale = 65536.0;
  /// Applied after `growth_interval` clean steps in a row; > 1.
  double growth_factor = 2.0;
  /// Applied after a step that overflowed; in (0, 1).
  double backoff_factor = 0.5;
  /// Optimizer steps, counted at update(), not backward passes; >= 1.
  int64_t growth_interval = 2000;
  /// The scale never falls below; > 0. torch.amp.GradScaler has no floor: its
  /// scale can reach 0, and the next good step then multiplies 0 by inf.
  double min_scale = 1.0;
  /// The scale never grows beyond; finite, >= min_scale. The default is the
  /// largest power of two of FP32, as far as torch.amp.GradScaler goes.
  double max_scale = 0x1p127;
  /// false: scale() and update() do nothing, step() only steps (and clips).
  bool enabled = true;
};

/// What GradScaler::step does besides stepping.
struct StepOptions {
  /// Clips the total 2-norm of the unscaled gradients to this, as
  /// torch.nn.utils.clip_grad_norm_ does; > 0. Infinity: measure the norm only.
  std::optional<double> max_norm;
  /// true: an optimizer none of whose parameters has a gradient is skipped
  /// and does not count at update(), instead of being an error.
  bool allow_no_grad = false;
};

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
/// Differs from torch.amp.GradScaler, which is what the tests compare it with,
/// in: min_scale and max_scale; a 16-bit loss is scaled in FP32; the unscaled
/// gradients, not the scaled ones, are what must be finite; bf16 gradients work
/// on every device.
///
/// Source: https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
class AMPKIT_API GradScaler {
 public:
  /// Throws c10::ValueError, naming the field, if an option is out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Enabled only if `precision` scales its loss.
  explicit GradScaler(
      const Precision& precision, const GradScalerOptions& options = {});

  /// Lets error messages name the parameters of `module` instead of counting
  /// them. Keeps no reference to it.
  void name_parameters(const torch::nn::Module& module);

  /// Returns `loss` * scale in FP32 (FP64 for an FP64 loss). `loss`: any shape,
  /// floating point.
  at::Tensor scale(const at::Tensor& loss);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& losses);

  /// Divides every gradient of `optimizer` by the scale, in place, and records
  /// whether any element is inf or NaN. Needed only if gradients are looked at
  /// or changed before step(). Undefined gradients are passed over. Does not
  /// wait for the device.
  ///
  /// Throws c10::Error, changing nothing, if called twice between update()s or
  /// after step(), before any scale(), or if a gradient is fp16 (it would lose
  /// what scaling saved: let step() unscale it).
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps `optimizer` unless a gradient is inf or NaN; unscales, in a way that
  /// leaves ampkit's optimizers' gradients unwritten, if that was not done.
  ///
  /// Throws c10::Error, changing nothing, if called twice between update()s,
  /// before any scale(), for a torch::optim::LBFGS (its closure computes
  /// gradients that nobody unscales), if no parameter has a gradient, or, for
  /// an optimizer that is not ampkit's, on an fp16 gradient.
  StepResult step(
      torch::optim::Optimizer& optimizer, const StepOptions& options = {});

  /// Grows or backs off the scale. Once per iteration, after every step().
  /// Throws c10::Error if no optimizer was unscaled or stepped since the last.
  void update();

  /// Sets the scale to `new_scale` (finite, > 0) instead.
  void update(double new_scale);

  /// Forgets the iteration: what unscale_() and step() recorded since the last
  /// update(). For a loop that decides not to step after unscale_().
  void abandon();

  /// The current scale; 1 if disabled. Synchronises with the device.
  double get_scale() const;

  double get_growth_factor() const { return options_.growth_factor; }
  double get_backoff_factor() const { return options_.backoff_factor; }
  int64_t get_growth_interval() const { return options_.growth_interval; }
  bool is_enabled() const { return options_.enabled; }

  /// step() calls that changed the parameters, and that did not, since
  /// construction. Synchronise with the device.
  int64_t steps_taken() const;
  int64_t steps_skipped() const;

  /// Under torch.amp.GradScaler's keys: scale, growth_factor, backoff_factor,
  /// growth_interval, _growth_tracker; empty if disabled. Synchronises.
  io::StateDict state_dict() const;

  /// Takes a state_dict() of this class or the same entries from Python, before
  /// or after the first scale(). A disabled scaler ignores it. Throws
  /// c10::Error, changing nothing, if an entry is missing or out of range, or
  /// if the state is that of a disabled scaler. A scale outside [min_scale,
  /// max_scale] is moved to the nearer limit.
  void load_state_dict(const io::StateDict& state);

 private:
  // What one optimizer went through since the last update().
  struct Record {
    at::Tensor found_inf; // fp32 []; > 0 if a gradient was non-finite
    bool unscaled = false;
    bool stepped = false;
  };

  Record& require_record(torch::optim::Optimizer& optimizer, const char* who);
  at::Tensor unscale_gradients(torch::optim::Optimizer& optimizer);
  StepResult fused_step(
      torch::optim::Optimizer& optimizer,
      const StepOptions& options,
      Record& record);
  StepResult unfused_step(
      torch::optim::Optimizer& optimizer,
      const StepOptions& options,
      Record& record);
  void create_tensors(c10::Device device);
  void count(const at::Tensor& found_inf);
  std::string name_of(
      const at::Tensor& parameter, size_t group, size_t index) const;

  GradScalerOptions options_;
  int64_t init_growth_tracker_ = 0;
  at::Tensor scale_; // fp32 []; undefined until the first scale()
  at::Tensor growth_tracker_; // int32 []; clean steps since the last change
  at::Tensor skipped_; // int64 []; steps skipped
  int64_t steps_ = 0; // step() calls
  std::unordered_map<const torch::optim::Optimizer*, Record> records_;
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
};

} // namespace ampkit
