#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/module_policy.h>
#include <ampkit/amp/step_result.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit {

/// One layer changed its dtype, or, in a roll-out, was refused it.
struct PrecisionMove {
  int64_t step = 0; ///< update() calls before
  std::string module; ///< its path
  c10::ScalarType from = c10::ScalarType::Undefined;
  c10::ScalarType to = c10::ScalarType::Undefined; ///< `from` if refused
  std::string reason; ///< with the numbers
  bool operator==(const PrecisionMove&) const = default;
};

/// The move as a row for io::JsonLinesWriter: step, module, from, to, reason.
AMPKIT_API io::StateDict to_row(const PrecisionMove& move);

/// Of the elements looked at in one observed step; what each share means
/// exactly stands in docs/precision_controller.md.
struct TensorStatistics {
  int64_t elements = 0; ///< 0: nothing was seen
  double overflow = 0; ///< inf, NaN, or (float32) beyond the 16-bit range
  double underflow = 0; ///< lost to zero, of those not zero in float32
  double subnormal = 0; ///< of those not zero
  double amax = 0; ///< largest finite magnitude
  bool operator==(const TensorStatistics&) const = default;
};

/// What a controller knows of one layer.
struct LayerStatistics {
  std::string module; ///< its path
  /// That its last output had; Undefined: none was seen.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  TensorStatistics output;
  TensorStatistics output_gradient; ///< times the loss scale
  TensorStatistics parameter_gradient; ///< times the loss scale
  /// Of the observed steps, oldest first.
  std::vector<double> output_amax;
  std::vector<double> gradient_amax; ///< of output_gradient
};

/// Settings of a roll-out: all layers begin in float32 and are moved to 16 bits
/// a few at a time.
struct PrecisionRolloutOptions {
  /// Steps between two checks; >= 1.
  int64_t interval = 100;
  /// Layers that are tried at once; a group that fails is halved; >= 1.
  int64_t group = 1;
  /// Largest |loss - loss in float32| / |loss in float32|; > 0.
  double loss_bound = 0.01;
  /// Largest norm of (gradient - gradient in float32) / norm of the latter,
  /// over all parameters; > 0.
  double gradient_bound = 0.1;
};

/// Settings of a PrecisionController.
struct PrecisionControllerOptions {
  /// Layers for which it has a rule stay as the rule says.
  ModulePolicy policy = {};
  /// The 16-bit dtype of the Autocast regions: Half or BFloat16.
  c10::ScalarType dtype = c10::ScalarType::Half;

  /// Steps from one observed step to the next; >= 1. After a skipped step the
  /// next one is observed too, every element of it.
  int64_t sample_interval = 50;
  /// At most so many elements of a tensor are looked at, evenly spaced; >= 1.
  int64_t sample_elements = 1024;

  /// A layer fails a step in which one of its tensors has a greater share; in
  /// [0, 1]. 1 switches the test off.
  double overflow_share = 0;
  double underflow_share = 0.1;
  double subnormal_share = 0.95;
  /// Gradients that overflow are the scaler's business until it has skipped so
  /// many steps in a row; >= 1.
  int64_t overflow_patience = 8;

  /// Observed steps in a row that must fail before a layer moves; >= 1.
  int64_t fail_window = 3;
  /// Observed steps in a row that must be clean before it comes back; >= 1.
  int64_t clean_window = 20;
  /// The clean window of a layer is multiplied by this at each failure after
  /// its first; >= 1.
  double window_growth = 2;
  /// The clean window never grows beyond; >= clean_window.
  int64_t max_clean_window = 1280;
  /// What is clean: amax times this is in the range of `dtype`, and shares are
  /// below the limits divided by it; >= 1.
  double return_margin = 4;
  /// Observed steps that statistics() remembers; >= 1.
  int64_t amax_history_len = 16;

  /// Start with a roll-out.
  std::optional<PrecisionRolloutOptions> rollout = std::nullopt;
  /// Called for each move, from update() and check_rollout().
  std::function<void(const PrecisionMove&)> on_move = nullptr;
};

/// Watches the layers of a network that trains in 16 bits, moves those that
/// fail to float32, and back when they have been clean for a while.
///
///     ampkit::PrecisionController controller(*model, {.dtype = torch::kHalf});
///     ...
///     {
///       ampkit::Autocast autocast(
///           device, precision, {.modules = controller.modules()});
///       loss = criterion(model->forward(x), y);
///     }
///     scaler.scale(loss).backward();
///     const auto result = scaler.step(optimizer);
///     scaler.update();
///     controller.update(result);
///
/// A layer is a module with parameters of its own. At an observed step the
/// outputs of its ops, their gradients and the gradients of its parameters are
/// counted; forward passes without gradients are not. Steps that are not
/// observed cost a test of one pointer an op.
///
/// The counts of tensors on a GPU stay there until update(), which waits for
/// them once per observed step. Call update() and check_rollout() outside of
/// Autocast regions. Not thread-safe, but forward and backward may run on other
/// threads. One controller a network; parameters that are added later are not
/// seen.
class AMPKIT_API PrecisionController {
 public:
  /// Throws c10::ValueError, naming the field, if an option is out of range, if
  /// `options.policy` matches nothing, or if there are no layers.
  explicit PrecisionController(
      const torch::nn::Module& module,
      const PrecisionControllerOptions& options = {});
  explicit PrecisionController(
      const torch::jit::Module& module,
      const PrecisionControllerOptions& options = {});
  ~PrecisionController();
  PrecisionController(const PrecisionController&) = delete;
  PrecisionController& operator=(const PrecisionController&) = delete;
  PrecisionController(PrecisionController&&) = delete;
  PrecisionController& operator=(PrecisionController&&) = delete;

  /// For AutocastOptions; follows all later moves.
  BoundModulePolicy modules() const;

  /// Ends a step: decides which layers move. Once per iteration, after
  /// GradScaler::step(), whose result tells it whether the step was skipped.
  void update(const StepResult& result);

  /// The same without a scaler: gradients that overflow are then a failure
  /// like any other.
  void update();

  /// Before the training pass of each step of a roll-out: nothing but a look
  /// at the step counter until a check is due. Then calls `loss` twice, with
  /// all layers in float32 and with the next ones in 16 bits, and moves these
  /// if loss and gradients stay within the bounds; else they stay in float32
  /// for good. When all have had their turn, a network that leaves the bounds
  /// loses the layer whose gradient is farthest off. Returns whether it
  /// checked.
  ///
  /// `loss` opens an Autocast with modules() and returns the loss, [] and
  /// attached to the graph, times the loss scale if there is one. It is run
  /// with the same random numbers each time; these, the network's buffers and
  /// the parameters' gradients are afterwards as before. Waits for the device.
  ///
  /// Throws c10::Error if no roll-out was asked for, or if `loss` ran no layer
  /// under modules() or has no gradient, having moved nothing.
  bool check_rollout(const std::function<at::Tensor()>& loss);

  /// Layers that wait for their turn in the roll-out.
  int64_t rollout_remaining() const;

  /// All moves, oldest first.
  const std::vector<PrecisionMove>& moves() const;

  /// Of each layer, in the order of the network, as last observed.
  std::vector<LayerStatistics> statistics() const;

  /// Whether the step that comes is observed.
  bool observing() const;

  /// Dtypes, windows, statistics and log: a controller of the same network and
  /// options that loads it makes the same moves from there on. Waits for the
  /// device.
  io::StateDict state_dict() const;

  /// Throws c10::Error, changing nothing, if the layers of `state` are not
  /// those of this controller or an entry is missing or out of range.
  void load_state_dict(const io::StateDict& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit
