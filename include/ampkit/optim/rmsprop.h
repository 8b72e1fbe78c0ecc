#pragma once

#include <ampkit/optim/typed_optimizer.h>

namespace ampkit::optim {

/// Settings of RMSprop; the defaults are those of torch.optim.RMSprop.
struct RMSpropOptions {
  /// >= 0.
  double lr = 1e-2;
  /// Decay of the running average of squares; in [0, 1).
  double alpha = 0.99;
  /// Added to the denominator; >= 0.
  double eps = 1e-8;
  /// Added to the gradient, times the weight; >= 0.
  double weight_decay = 0;
  /// 0: no momentum buffer is kept; >= 0.
  double momentum = 0;
  /// Divide by an estimate of the gradient's variance instead of its square.
  bool centered = false;
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// RMSprop (Hinton's lecture notes; centered: Graves, 2013), as
/// torch.optim.RMSprop.
///
///     RMSprop optimizer(model->parameters(), {.lr = 1e-3, .momentum = 0.9});
///
/// The options of a group are a torch::optim::RMSpropOptions, so that code
/// which casts to it and sets lr() or momentum() works.
class AMPKIT_API RMSprop : public TypedOptimizer<RMSpropOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
