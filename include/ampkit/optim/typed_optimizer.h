#pragma once

#include <vector>

#include <ampkit/optim/fused_optimizer.h>

namespace ampkit::optim {

/// The constructors and options that every optimizer of ampkit has. Not to be
/// derived from: defined for the options of ampkit's own optimizers only.
template <class OptionsType>
class AMPKIT_API TypedOptimizer : public FusedOptimizer {
 public:
  using Options = OptionsType;

  /// Throws c10::ValueError, naming the field or parameter, if an option is out
  /// of range, there is no parameter, or a parameter can't be optimized.
  explicit TypedOptimizer(
      std::vector<at::Tensor> params, const Options& options = {});
  explicit TypedOptimizer(NamedParameters params, const Options& options = {});
  explicit TypedOptimizer(std::vector<ParamGroup<Options>> groups);

  /// Throws as the constructors do, having added nothing.
  void add_param_group(ParamGroup<Options> group);

  /// The present options of group `index`.
  Options options(size_t index = 0) const;
  /// Throws c10::ValueError, changing nothing, if an option is out of range.
  void set_options(const Options& options, size_t index = 0);
};

} // namespace ampkit::optim
