#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/amp/step_result.h>
#include <ampkit/diagnose/capsule.h>
#include <ampkit/diagnose/capsule_recorder.h>
#include <ampkit/diagnose/inject.h>
#include <ampkit/diagnose/watch.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/zoo/data/image_loader.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/trainer.h>

namespace ampkit::zoo {

/// The faults of diagnose.inject, which are separated by ";". Throws as
/// diagnose::Fault::parse().
std::vector<diagnose::Fault> planted_faults(const DiagnoseConfig& config);

/// A batch as a capsule keeps it, and back.
io::StateDict state_of(const Batch& batch);
Batch batch_of(const io::StateDict& state);

/// What a Trainer does so that a step that goes wrong can be understood: says
/// where it is, saves the step, plants faults. [diagnose] of the configuration.
class Diagnosis {
 public:
  /// Throws as diagnose::Inject() and planted_faults() do.
  Diagnosis(
      const RunConfig& config,
      const torch::nn::Module& module,
      int rank,
      int world_size);

  /// From now on capsules go where `to` says. `state`: what they hold.
  void start(
      const TrainerEvents& to,
      const PrecisionPolicy& policy,
      std::function<io::StateDict()> state);
  void stop();

  /// Around one step, `number` from 1: before its forward pass, and between the
  /// optimizer's step and the scaler's update. Faults are planted while the
  /// result of begin() lives.
  [[nodiscard]] std::optional<diagnose::Inject::Step> begin(
      int64_t number, const std::vector<Batch>& window);
  void end(const at::Tensor& loss, const StepResult& result);

  /// A replay: faults are planted, nothing is saved.
  [[nodiscard]] std::optional<diagnose::Inject::Step> plant(int64_t number);

  void phase(const char* name) const;

  /// The step being watched, which hears of micro-batches.
  void watch(diagnose::Watch::Step* step) { watched_ = step; }
  void micro_batch(int64_t number) const;

  /// Running statistics that a loss of inf or NaN has spoilt become again what
  /// they were at begin(): such a step changes nothing. Does not wait for a
  /// GPU.
  void mend_buffers(const at::Tensor& loss) const;

  /// Largest magnitude of the gradients as they are: shape [], on the device;
  /// undefined if nobody asks. Does not wait.
  at::Tensor largest_gradient() const;

 private:
  const RunConfig& config_;
  const torch::nn::Module& module_;
  int rank_;
  int world_size_;
  std::unique_ptr<diagnose::Inject> inject_; // null: no faults
  std::unique_ptr<diagnose::CapsuleRecorder> capsules_; // null: none are kept
  std::vector<at::Tensor> buffers_; // copies, in the order of module.buffers()
  const TrainerEvents* to_ = nullptr;
  diagnose::Watch::Step* watched_ = nullptr;
  int64_t step_ = 0;
};

/// Diagnosis::start() and stop() around a run.
class DiagnosisOfRun {
 public:
  DiagnosisOfRun(
      Diagnosis& diagnosis,
      const TrainerEvents& to,
      const PrecisionPolicy& policy,
      std::function<io::StateDict()> state)
      : diagnosis_(diagnosis) {
    diagnosis.start(to, policy, std::move(state));
  }
  ~DiagnosisOfRun() { diagnosis_.stop(); }
  DiagnosisOfRun(const DiagnosisOfRun&) = delete;
  DiagnosisOfRun& operator=(const DiagnosisOfRun&) = delete;

 private:
  Diagnosis& diagnosis_;
};

} // namespace ampkit::zoo
