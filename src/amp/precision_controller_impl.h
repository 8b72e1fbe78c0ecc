#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ampkit/amp/precision_controller.h>

#include "amp/layer_recorder.h"
#include "amp/precision_judge.h"

namespace ampkit {

/// Where a layer is on its way between the dtypes.
enum class LayerStage : uint8_t {
  low, ///< 16 bits, as the region says
  watched, ///< float32 since it failed; comes back when clean
  waiting, ///< float32, its turn in the roll-out is to come
  refused, ///< float32 for good: it left the bounds of the roll-out
  fixed, ///< as a rule of the policy says
};

std::string to_string(LayerStage stage);
LayerStage parse_layer_stage(const std::string& name);

struct ControlledLayer {
  LayerStage stage = LayerStage::low;
  int64_t failing = 0; // failed steps that count towards fail_window
  bool failed_by_overflow = false;
  int64_t clean = 0; // clean observed steps since the last other one
  int64_t failures = 0; // moves to float32
  int64_t window = 0; // clean steps that it takes to come back
  PerKind structural{0, 0, 0}; // zeros that float32 had
  LayerStatistics statistics;
};

class PrecisionController::Impl {
 public:
  Impl(
      const PrecisionControllerOptions& options,
      const BoundModulePolicy& modules,
      std::vector<at::Tensor> parameters,
      std::vector<at::Tensor> buffers);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;

  const BoundModulePolicy& modules() const { return modules_; }
  const std::vector<PrecisionMove>& moves() const { return moves_; }
  std::vector<LayerStatistics> statistics() const;
  bool observing() const { return observing_; }
  int64_t rollout_remaining() const;

  /// nullptr: there is no scaler.
  void update(const StepResult* result);
  bool check_rollout(const std::function<at::Tensor()>& loss);

  io::StateDict state_dict() const;
  void load_state_dict(const io::StateDict& state);

 private:
  // A range of layers [first, last) to be tried together.
  using Group = std::pair<int64_t, int64_t>;

  struct Pass {
    double loss = 0;
    std::vector<at::Tensor> gradients; // of trained_parameters(), FP32
  };
  struct Deviation {
    double loss = 0;
    double gradient = 0;
    int worst = -1; // the 16-bit layer whose gradient is farthest off
  };
  class RestoredState;

  void load_rest(
      const io::StateDict& state, std::vector<ControlledLayer> layers);
  void put_dtypes_in_force();

  std::string path(int layer) const;
  void plan_rollout();

  void begin_step();
  StepOutcome outcome_of(const StepResult* result);
  int64_t streak() const;
  void apply(int layer, const LayerFinding& finding);
  void count_failure(int layer, const LayerFinding& finding);
  void count_clean(int layer, const LayerFinding& finding);
  void remember(ControlledLayer& layer, const LayerFinding& finding) const;
  void move(int layer, LayerStage stage, const std::string& reason);
  void log(PrecisionMove move);
  at::ScalarType dtype_in(LayerStage stage) const;

  std::vector<at::Tensor> trained_parameters() const;
  Pass run_pass(
      const std::function<at::Tensor()>& loss,
      const std::vector<at::Tensor>& parameters);
  Pass reference_pass(
      const std::function<at::Tensor()>& loss,
      const std::vector<at::Tensor>& parameters);
  Deviation compare(
      const Pass& pass,
      const Pass& reference,
      const std::vector<at::Tensor>& parameters) const;
  void try_group(
      const std::function<at::Tensor()>& loss,
      const std::vector<at::Tensor>& parameters,
      const Pass& reference);
  void accept_or_refuse(const Group& group, const Deviation& deviation);
  std::string text(const Deviation& deviation) const;
  bool within_bounds(const Deviation& deviation) const;

  const PrecisionControllerOptions options_;
  const PrecisionRolloutOptions rollout_; // the defaults if there is none
  const BoundModulePolicy modules_;
  const std::vector<at::Tensor> parameters_;
  const std::vector<at::Tensor> buffers_;
  std::shared_ptr<LayerRecorder> recorder_;

  std::vector<ControlledLayer> layers_;
  std::vector<PrecisionMove> moves_;
  std::deque<Group> groups_; // of the roll-out, next first
  int64_t step_ = 0; // update() calls
  int64_t last_check_ = 0; // step_ at the last check of the roll-out
  bool urgent_ = false; // the step before went wrong
  bool observing_ = false;
  int64_t streak_ = 0; // skipped steps in a row
  at::Tensor streak_on_device_; // the same, where not yet read back
};

} // namespace ampkit
