#pragma once

#include <ampkit/optim/typed_optimizer.h>

namespace ampkit::optim {

/// Settings of Adagrad; the defaults are those of torch.optim.Adagrad.
struct AdagradOptions {
  /// >= 0.
  double lr = 1e-2;
  /// Step t uses lr / (1 + (t - 1) * this); >= 0.
  double lr_decay = 0;
  /// Added to the gradient, times the weight; >= 0.
  double weight_decay = 0;
  /// What the sums of squares start from; >= 0. (torch.optim.Adagrad takes that
  /// of its constructor for all groups.)
  double initial_accumulator_value = 0;
  /// Added to the denominator; >= 0.
  double eps = 1e-10;
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// Adagrad (Duchi et al., 2011), as torch.optim.Adagrad.
///
///     Adagrad optimizer(model->parameters(), {.lr = 0.05});
///
/// The options of a group are a torch::optim::AdagradOptions, so that code
/// which casts to it and sets lr() works.
class AMPKIT_API Adagrad : public TypedOptimizer<AdagradOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
