#pragma once

#include <memory>
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

/// Parameters of one group that LibTorch's fused ops update in one call.
struct StockBatch {
  const OptimizerOptions* options = nullptr;
  std::vector<ParameterRecord*> records;
  std::vector<at::Tensor> weights; // parameters or masters
  std::vector<at::Tensor> grads; // in the dtype of the weights, divided
  at::Tensor found_inf; // fp32 [], 0 or 1; undefined: step
};

/// What is special to one kind of optimizer: FusedOptimizer does the rest.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// "AdamW": opens messages and is kept in state dicts.
  virtual const char* name() const = 0;

  /// All that the rule may keep for a parameter, and how many of them a group
  /// with `options` uses.
  virtual const std::vector<std::string>& moment_names() const = 0;
  virtual size_t moment_count(const OptimizerOptions& options) const = 0;

  /// Whether a parameter that took steps may be without moments.
  virtual bool may_lack_moments() const { return false; }

  /// Throws c10::ValueError, naming the field, if an option is out of range or
  /// the type is another optimizer's.
  virtual void check_options(const OptimizerOptions& options) const = 0;
  virtual Kernel kernel(const OptimizerOptions& options) const = 0;
  virtual io::StateDict save_options(const OptimizerOptions& options) const = 0;
  /// `current` with what `state` says. Throws c10::Error if it doesn't fit.
  virtual std::unique_ptr<OptimizerOptions> load_options(
      const io::StateDict& state, const OptimizerOptions& current) const = 0;

  /// Whether moments that were never updated must be told from zeros.
  virtual bool first_step_differs(const OptimizerOptions& options) const = 0;

  /// Own kernels: prepare() takes what is the same for all elements of a
  /// parameter; update() may then be called for runs of elements of works[i],
  /// from several threads.
  virtual void prepare(std::span<const Work> works, float inverse_divisor) = 0;
  virtual void update(size_t i, const kernels::UpdateSpan& span) const = 0;

  /// LibTorch's kernels.
  virtual void update_stock(const StockBatch& batch) const = 0;

 protected:
  std::vector<at::Tensor> moments_of(const StockBatch& batch, size_t i) const;
};

/// `value` if it is finite and >= `low` (and < `high`); else throws
/// c10::ValueError "AdamW: lr must be ..., got ...".
void check_range(
    const char* who, const char* field, double value, double low, double high);

} // namespace ampkit::optim
