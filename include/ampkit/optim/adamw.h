#pragma once

#include <utility>

#include <ampkit/optim/typed_optimizer.h>

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
  /// Divide by the largest average of squares so far (Reddi et al., 2018).
  bool amsgrad = false;
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as
/// torch.optim.AdamW.
///
///     AdamW optimizer(model->parameters(), {.lr = 3e-4});
///     AdamW optimizer(named(*model), {.lr = 3e-4});   // messages with names
///
/// The options of a group are a torch::optim::AdamWOptions, so that code which
/// casts to it and sets lr(), betas(), eps() or weight_decay() works.
class AMPKIT_API AdamW : public TypedOptimizer<AdamWOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
