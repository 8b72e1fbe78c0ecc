#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <ampkit/amp/fused_step.h>
#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/optim/param_group.h>

namespace ampkit::optim {

class UpdateRule;
struct RawGroup;

/// What all optimizers of ampkit have in common.
///
/// State (moments, masters) is fp32 whatever the parameter's dtype; of an fp64
/// parameter it is fp64. 16-bit parameters get an fp32 master, made at the
/// first step that has a gradient for them, and always equal to the parameter
/// within its rounding: where somebody else wrote the parameter (loaded
/// weights, an EMA swap), the next step starts from what was written.
///
/// Parameters: floating-point leaves, all on one device. One that appears twice
/// in a group counts once. One without gradient is left alone, its step count
/// included. The groups are those of torch::optim::Optimizer: learning rates
/// are read at every step, so that any scheduler works.
///
/// step(), inspect_gradients() and fused_step() throw c10::Error, having
/// changed nothing, for a gradient that is sparse or does not fit its
/// parameter, naming the parameter. Results don't depend on the number of
/// threads. Not thread-safe.
class AMPKIT_API FusedOptimizer : public torch::optim::Optimizer,
                                  public FusedStep {
 public:
  ~FusedOptimizer() override;

  /// Updates the parameters from their gradients as they are. `closure`, if
  /// given, is run first, with gradients enabled; its loss is returned.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// Waits for the device only if that is the CPU. Throws c10::ValueError for
  /// another norm than 1, 2 or infinity.
  GradientSummary inspect_gradients(double norm_type = 2) override;

  /// Does not wait for the device, except: SGD with momentum and dampening
  /// waits until its first step was taken. No gradient is written to. Throws
  /// c10::ValueError if the divisor is on the CPU and not > 0 in a step that is
  /// to be taken, or if a limit is not > 0.
  void fused_step(const FusedStepInputs& inputs) override;

  /// From the gradients that the last inspect_gradients() read on the CPU; on
  /// other devices from those of now, for which it waits.
  std::vector<NonFiniteGradient> non_finite_gradients() const override;

  /// false: 16-bit parameters keep no master, and those there are go at the
  /// next step, which saves 4 bytes a parameter. Each step still computes in
  /// fp32, but from the parameter, and rounds into it: an update of less than
  /// half the spacing of its values is lost. Default: true.
  void keep_masters(bool keep);

  /// What the update works on: the fp32 master of a 16-bit parameter that was
  /// updated at least once, else `parameter` itself. Throws c10::Error if
  /// `parameter` is none of the optimizer's.
  at::Tensor master(const at::Tensor& parameter) const;

  /// The name of `parameter`, as in NamedParameters. Throws as master() does.
  const std::string& name_of(const at::Tensor& parameter) const;

  /// Steps taken on `parameter`. Throws as master() does. Waits for the device.
  int64_t steps_of(const at::Tensor& parameter) const;

  /// Options of each group, names, shapes and dtypes of the parameters, steps,
  /// moments and masters. Tensors are shared: to freeze them, clone. Waits for
  /// the device.
  io::StateDict state_dict() const;

  /// Restores what state_dict() gave, from any device, to the last bit.
  /// Masters may be missing: they are made from the parameters then. Throws
  /// c10::Error, having changed nothing, with a list of all that does not fit:
  /// kind of optimizer, groups, names, shapes, dtypes, entries.
  void load_state_dict(const io::StateDict& state);

  /// torch::save() and torch::load(): the entries of state_dict() in an
  /// archive, checked as in load_state_dict(). An archive written by a
  /// torch::optim optimizer is refused.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  FusedOptimizer(
      std::unique_ptr<UpdateRule> rule, std::vector<RawGroup> groups);

  void add_group(RawGroup group);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace ampkit::optim
