#pragma once

#include <utility>
#include <vector>

#include <ampkit/optim/fused_optimizer.h>

namespace ampkit::optim {

/// Settings of AdamW; the defaults are those of torch.optim.AdamW.
struct AdamWOptions {
  /// >= 0.
  double lr = 1e-3;
  /// Decay of the running averages of the gradient and its square; in [0, 1).
  std::pair<double, double> betas = {0.9, 0.999};
  /// Added to the denominator; >= 0.
  double eps = 1e-8;
  /// Decoupled: each step first multiplies the weights by 1 - lr * this; >= 0.
  double weight_decay = 1e-2;
  Kernel kernel = Kernel::automatic;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as
/// torch.optim.AdamW, without its amsgrad and maximize.
///
///     AdamW optimizer(model->parameters(), {.lr = 3e-4});
///     AdamW optimizer(named(*model), {.lr = 3e-4});   // messages with names
///
/// The options of a group are a torch::optim::AdamWOptions, so that code which
/// casts to it and sets lr(), betas(), eps() or weight_decay() works.
class AMPKIT_API AdamW : public FusedOptimizer {
 public:
  using Options = AdamWOptions;

  /// Throws c10::ValueError, naming the field or parameter, if an option is out
  /// of range, there is no parameter, or a parameter can't be optimized.
  explicit AdamW(std::vector<at::Tensor> params, const Options& options = {});
  explicit AdamW(NamedParameters params, const Options& options = {});
  explicit AdamW(std::vector<ParamGroup<Options>> groups);

  /// Throws as the constructors do, having added nothing.
  void add_param_group(ParamGroup<Options> group);

  /// The present options of group `index`.
  Options options(size_t index = 0) const;
  /// Throws c10::ValueError, changing nothing, if an option is out of range.
  void set_options(const Options& options, size_t index = 0);
};

} // namespace ampkit::optim
