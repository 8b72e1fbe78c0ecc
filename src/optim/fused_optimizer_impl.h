#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ampkit/optim/fused_optimizer.h>

#include "optim/parameter_record.h"
#include "optim/update_rule.h"

namespace ampkit::optim {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;

struct FusedOptimizer::Impl {
  std::unique_ptr<UpdateRule> rule;
  std::vector<std::string> group_names;
  /// In the order of the parameters over all groups.
  std::vector<std::unique_ptr<ParameterRecord>> records;
  /// Of the last inspect_gradients() on the CPU: works and their counts.
  std::vector<NonFiniteGradient> inspected;
  bool inspected_on_cpu = false;
  bool keep_masters = true;

  bool in_line_with(const Groups& groups) const;

  /// Brings `records` in line with the groups, which the base class lets
  /// anybody edit.
  void follow(const Groups& groups);

  /// The parameters that have gradients. Changes nothing but through follow().
  std::vector<Work> collect(const Groups& groups);

  /// Appends a record for each parameter of `group`, which is checked, and
  /// gives the parameters, each once.
  std::vector<at::Tensor> add_records(const RawGroup& group, size_t index);

  /// `works` by who updates them.
  struct ByKernel {
    std::vector<Work> own;
    std::vector<Work> stock;
  };

  /// Checks the options and makes the state that is missing.
  ByKernel prepare(std::vector<Work> works) const;

  /// One step of prepared parts.
  void update(const ByKernel& parts, const FusedStepInputs& inputs);

  /// The same a batch of parameters at a time, each with temporaries: gradients
  /// that are clipped adaptively, masters that are not kept.
  void update_in_batches(const ByKernel& parts, const FusedStepInputs& inputs);
  void update_batch(
      std::vector<Work> batch, bool own, const FusedStepInputs& inputs);

  const ParameterRecord& find(const at::Tensor& parameter) const;

  c10::Device device() const;

  /// Whether ampkit's kernels update `work`. Throws if they were asked for and
  /// can't.
  bool uses_own_kernel(const Work& work) const;
};

io::StateDict save_state(
    const UpdateRule& rule,
    const Groups& groups,
    const std::vector<std::string>& group_names,
    const std::vector<std::unique_ptr<ParameterRecord>>& records);

/// Throws c10::Error, having changed nothing, if `state` does not fit.
void load_state(
    const io::StateDict& state,
    const UpdateRule& rule,
    Groups& groups,
    const std::vector<std::unique_ptr<ParameterRecord>>& records);

} // namespace ampkit::optim
