#pragma once

#include <ampkit/optim/typed_optimizer.h>

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
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// Stochastic gradient descent with momentum, as torch.optim.SGD.
///
///     SGD optimizer(model->parameters(), {.lr = 0.1, .momentum = 0.9});
///
/// The options of a group are a torch::optim::SGDOptions, so that code which
/// casts to it and sets lr() or momentum() works.
class AMPKIT_API SGD : public TypedOptimizer<SGDOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
