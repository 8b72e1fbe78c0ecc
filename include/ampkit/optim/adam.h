#pragma once

#include <utility>

#include <ampkit/optim/typed_optimizer.h>

namespace ampkit::optim {

/// Settings of Adam; the defaults are those of torch.optim.Adam.
struct AdamOptions {
  /// >= 0.
  double lr = 1e-3;
  /// Decay of the running averages of the gradient and its square; in [0, 1).
  std::pair<double, double> betas = {0.9, 0.999};
  /// Added to the denominator; >= 0.
  double eps = 1e-8;
  /// Added to the gradient, times the weight; >= 0. AdamW decays otherwise.
  double weight_decay = 0;
  /// Divide by the largest average of squares so far (Reddi et al., 2018).
  bool amsgrad = false;
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// Adam (Kingma and Ba, 2015), as torch.optim.Adam.
///
///     Adam optimizer(model->parameters(), {.lr = 3e-4, .amsgrad = true});
///
/// The options of a group are a torch::optim::AdamOptions, so that code which
/// casts to it and sets lr() or betas() works.
class AMPKIT_API Adam : public TypedOptimizer<AdamOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
