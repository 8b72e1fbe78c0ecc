#pragma once

#include <optional>
#include <utility>

#include <ampkit/optim/typed_optimizer.h>

namespace ampkit::optim {

/// Settings of Adafactor; the defaults are those of torch.optim.Adafactor.
struct AdafactorOptions {
  /// Largest relative step size, and what multiplies weight_decay; >= 0.
  double lr = 1e-2;
  /// The average of squares forgets t^this in step t; <= 0.
  double beta2_decay = -0.8;
  /// Least root of the estimated variance (none: the spacing of the state's
  /// dtype at 1, 2^-23 in fp32), and least RMS of the weights in the step size;
  /// >= 0.
  std::pair<std::optional<double>, double> eps = {std::nullopt, 1e-3};
  /// Largest RMS of an update before the step size; >= 1.
  double d = 1.0;
  /// Decoupled: each step first multiplies the weights by 1 - lr * this; >= 0.
  double weight_decay = 0;
  /// Climb instead of descend.
  bool maximize = false;
  Kernel kernel = Kernel::automatic;
};

/// Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor, which says
/// where it differs from the paper. Of a parameter with two or more dimensions
/// it keeps the variances of rows and columns (of the last two dimensions)
/// instead of those of all elements; of others all.
///
///     Adafactor optimizer(model->parameters(), {.lr = 1e-2});
class AMPKIT_API Adafactor : public TypedOptimizer<AdafactorOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
