#pragma once

#include <utility>

#include <ampkit/optim/typed_optimizer.h>

namespace ampkit::optim {

/// Settings of LAMB; names and defaults are those of apex's FusedLAMB.
struct LAMBOptions {
  /// >= 0.
  double lr = 1e-3;
  /// Decay of the running averages of the gradient and its square; in [0, 1).
  std::pair<double, double> betas = {0.9, 0.999};
  /// Added to the denominator; >= 0.
  double eps = 1e-6;
  /// Added to Adam's direction, times the weight, before the trust ratio;
  /// >= 0.
  double weight_decay = 1e-2;
  /// Divide the averages by 1 - beta^t.
  bool bias_correction = true;
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// LAMB (You et al., 2020, https://arxiv.org/abs/1904.00962, algorithm 2), for
/// large batches: Adam's direction, made as long for each parameter as its
/// weights are. The trust ratio |w| / |direction| is taken as it is, for every
/// parameter, and is 1 where one of the two is 0.
///
/// Gradients are clipped only where asked: apex's FusedLAMB clips their total
/// norm to 1, which here is GradScaler::step(optimizer, {.max_norm = 1}).
class AMPKIT_API LAMB : public TypedOptimizer<LAMBOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
