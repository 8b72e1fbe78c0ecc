#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "kernels/optim_span.h"

namespace ampkit::optim {

/// A parameter group as the constructors of the optimizers hand it over.
struct RawGroup {
  std::vector<at::Tensor> params;
  std::vector<std::string> names;
  std::string name;
  std::unique_ptr<torch::optim::OptimizerOptions> options;
};

/// One parameter of an optimizer and all that belongs to it.
struct ParameterRecord {
  at::Tensor parameter;
  std::string name;
  size_t group = 0;
  /// Steps taken, of a parameter on the CPU. Elsewhere they are counted in
  /// `step_tensor`, because only the device knows whether a step was skipped.
  int64_t step = 0;
  at::Tensor step_tensor; // fp32 []
  /// fp32, for a 16-bit parameter only; else undefined.
  at::Tensor master;
  /// In the order of UpdateRule::moment_names(); undefined where not in use.
  std::vector<at::Tensor> moments;
  /// The moments were not updated yet.
  bool fresh = true;
};

/// One parameter that takes part in a pass.
struct Work {
  ParameterRecord* record = nullptr;
  const torch::optim::OptimizerOptions* options = nullptr;
  at::Tensor grad; // in the memory layout of the parameter
};

class UpdateRule;

/// Throws c10::ValueError, naming the parameter, unless every one of `group`
/// can be optimized by `rule` together with `records`.
void check_group(
    const UpdateRule& rule,
    const RawGroup& group,
    const std::vector<std::unique_ptr<ParameterRecord>>& records);

/// "'fc.weight' (Half [3, 2])"
std::string describe(const ParameterRecord& record);

/// Throws c10::Error unless `grad` can update the parameter of `record`.
/// Returns it in the parameter's memory layout.
at::Tensor usable_gradient(
    const std::string& who,
    const ParameterRecord& record,
    const at::Tensor& grad);

/// Makes moments, and the master if it is kept, where they are missing, and
/// takes them to where the parameter is now. Throws c10::Error if the
/// parameter's shape changed.
void prepare_state(
    const UpdateRule& rule,
    ParameterRecord& record,
    const torch::optim::OptimizerOptions& options,
    bool keep_master);

/// Gives the record of a 16-bit parameter a master with its present values.
void make_master(ParameterRecord& record);

/// A tensor for state of `shape`: in the memory layout of the parameter if it
/// has its shape, else contiguous. Not initialized.
at::Tensor empty_state(
    const at::Tensor& parameter, at::IntArrayRef shape, at::ScalarType dtype);

/// fp64 for an fp64 parameter, else fp32.
at::ScalarType state_dtype(const at::Tensor& parameter);

inline bool needs_master(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kHalf ||
         parameter.scalar_type() == at::kBFloat16;
}

/// Steps taken; waits for the device.
int64_t steps_taken(const ParameterRecord& record);

/// Whether the kernels of ampkit can read or write `tensor`.
bool has_own_kernel(const at::Tensor& tensor);

kernels::Float float_type(at::ScalarType type);

} // namespace ampkit::optim
