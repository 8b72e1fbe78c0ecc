#pragma once

#include <utility>

#include <ampkit/optim/typed_optimizer.h>

namespace ampkit::optim {

/// Settings of Lion; the defaults are those of the paper's own implementation.
struct LionOptions {
  /// A third to a tenth of AdamW's; >= 0.
  double lr = 1e-4;
  /// Share of the average in the step's direction, and decay of the average;
  /// in [0, 1).
  std::pair<double, double> betas = {0.9, 0.99};
  /// Decoupled: each step first multiplies the weights by 1 - lr * this, three
  /// to ten times AdamW's; >= 0.
  double weight_decay = 0;
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// Lion (Chen et al., 2023, https://arxiv.org/abs/2302.06675, algorithm 2):
/// steps of the same size for every element, and one average instead of two.
///
///     Lion optimizer(model->parameters(), {.lr = 1e-4, .weight_decay = 0.1});
class AMPKIT_API Lion : public TypedOptimizer<LionOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
