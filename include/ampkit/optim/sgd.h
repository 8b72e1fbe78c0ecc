#pragma once

#include <vector>

#include <ampkit/optim/fused_optimizer.h>

namespace ampkit::optim {

/// Settings of SGD; the defaults are those of torch.optim.SGD.
struct SGDOptions {
  /// >= 0.
  double lr = 1e-3;
  /// 0: no momentum buffer is kept; >= 0.
  double momentum = 0;
  /// The buffer takes 1 - this of each gradient but the first.
  double dampening = 0;
  /// Added to the gradient, times the weight; >= 0.
  double weight_decay = 0;
  /// Needs momentum > 0 and dampening 0.
  bool nesterov = false;
  Kernel kernel = Kernel::automatic;
};

/// Stochastic gradient descent with momentum, as torch.optim.SGD, without its
/// maximize.
///
///     SGD optimizer(model->parameters(), {.lr = 0.1, .momentum = 0.9});
///
/// The options of a group are a torch::optim::SGDOptions, so that code which
/// casts to it and sets lr() or momentum() works.
class AMPKIT_API SGD : public FusedOptimizer {
 public:
  using Options = SGDOptions;

  /// Throws c10::ValueError, naming the field or parameter, if an option is out
  /// of range, there is no parameter, or a parameter can't be optimized.
  explicit SGD(std::vector<at::Tensor> params, const Options& options = {});
  explicit SGD(NamedParameters params, const Options& options = {});
  explicit SGD(std::vector<ParamGroup<Options>> groups);

  /// Throws as the constructors do, having added nothing.
  void add_param_group(ParamGroup<Options> group);

  /// The present options of group `index`.
  Options options(size_t index = 0) const;
  /// Throws c10::ValueError, changing nothing, if an option is out of range.
  void set_options(const Options& options, size_t index = 0);
};

} // namespace ampkit::optim
