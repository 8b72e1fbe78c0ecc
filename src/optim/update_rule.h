#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <ampkit/io/state_dict.h>
#include <ampkit/optim/param_group.h>

#include "kernels/optim_span.h"
#include "optim/parameter_record.h"

namespace ampkit::optim {

using torch::optim::OptimizerOptions;

/// Parameters of one group that LibTorch's ops update in one call.
struct StockBatch {
  const OptimizerOptions* options = nullptr;
  std::vector<ParameterRecord*> records;
  std::vector<at::Tensor> weights; // parameters or masters
  std::vector<at::Tensor> grads; // in the dtype of the weights, as used
  at::Tensor found_inf; // fp32 [], 0 or 1; undefined: step

  /// The moments `i` of all records, and their step counts, fp32 [].
  std::vector<at::Tensor> moments(size_t i) const;
  std::vector<at::Tensor> steps() const;
  /// For the argument of LibTorch's fused ops.
  std::optional<at::Tensor> optional_found_inf() const;
};

/// What is done to a gradient before an update rule sees it.
struct GradientUse {
  float inverse_divisor = 1;
  float clip_value = std::numeric_limits<float>::infinity();
};

/// What is special to one kind of optimizer: FusedOptimizer does the rest.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// "AdamW": opens messages and is kept in state dicts.
  virtual const char* name() const = 0;

  /// All that the rule may keep for a parameter.
  virtual const std::vector<std::string>& moment_names() const = 0;
  /// Which of them, by number, `parameter` has under `options`.
  virtual std::vector<size_t> moments_used(
      const OptimizerOptions& options, const at::Tensor& parameter) const = 0;
  /// The shape of moment `i`.
  virtual std::vector<int64_t> moment_shape(
      size_t i, const at::Tensor& parameter) const;
  /// What a moment starts from.
  virtual double initial_moment(const OptimizerOptions&) const { return 0; }

  /// Whether a parameter that took steps may be without moments.
  virtual bool may_lack_moments() const { return false; }

  /// Throws c10::ValueError, naming the parameter, if the rule can't update it.
  virtual void check_parameter(
      const std::string& /*name*/, const at::Tensor& /*parameter*/) const {}

  /// Throws c10::ValueError, naming the field, if an option is out of range or
  /// the type is another optimizer's.
  virtual void check_options(const OptimizerOptions& options) const = 0;
  virtual Kernel kernel(const OptimizerOptions& options) const = 0;
  virtual io::StateDict save_options(const OptimizerOptions& options) const = 0;
  /// `current` with what `state` says. Throws c10::Error if it doesn't fit.
  virtual std::unique_ptr<OptimizerOptions> load_options(
      const io::StateDict& state, const OptimizerOptions& current) const = 0;

  /// Whether moments that were never updated must be told from their start.
  virtual bool first_step_differs(const OptimizerOptions&) const {
    return false;
  }

  /// Whether ampkit's kernels can update `parameter`, if it is on the CPU and
  /// in a dtype of theirs.
  virtual bool has_own_kernel(const at::Tensor& /*parameter*/) const {
    return false;
  }
  /// With ampkit's kernels: weights, masters and moments of `works`, whose
  /// records are prepared. Does not count the step.
  virtual void update_on_cpu(
      std::span<const Work> works, const GradientUse& use);

  /// With LibTorch's ops. The step counts are those after this step.
  virtual void update_stock(const StockBatch& batch) const = 0;
  /// Whether update_stock() leaves everything as it is if found_inf is not 0;
  /// else the caller takes the step back.
  virtual bool stock_skips_by_itself() const { return false; }
};

} // namespace ampkit::optim
