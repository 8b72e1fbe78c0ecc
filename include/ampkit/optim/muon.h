#pragma once

#include <array>
#include <cstdint>

#include <ampkit/optim/typed_optimizer.h>

namespace ampkit::optim {

/// How Muon's step depends on a matrix of A rows and B columns.
enum class AdjustLr {
  /// lr * sqrt(max(1, A / B)).
  original,
  /// 0.2 * lr * sqrt(max(A, B)), which suits learning rates found for AdamW.
  match_rms_adamw,
};

/// Settings of Muon; the defaults are those of torch.optim.Muon.
struct MuonOptions {
  /// >= 0.
  double lr = 1e-3;
  /// Decoupled: each step first multiplies the weights by 1 - lr * this; >= 0.
  double weight_decay = 0.1;
  /// Decay of the running average of the gradient; in [0, 1].
  double momentum = 0.95;
  bool nesterov = true;
  /// Of the Newton-Schulz polynomial a x + b x^3 + c x^5; finite.
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  /// Least norm by which a matrix is divided; >= 0.
  double eps = 1e-7;
  /// Newton-Schulz iterations; in [0, 100).
  int64_t ns_steps = 5;
  AdjustLr adjust_lr_fn = AdjustLr::original;
  Kernel kernel = Kernel::automatic;
};

/// Muon (Jordan et al., 2024), as torch.optim.Muon: momentum, made orthogonal
/// by Newton-Schulz iterations in bf16.
///
///     Muon hidden(matrices, {.lr = 0.02});
///     AdamW others(the_rest, {.lr = 3e-4});
///
/// For the weight matrices of hidden layers; constructors throw for a parameter
/// that has not two dimensions, naming it. Leave embeddings and heads to AdamW
/// too.
///
/// Kernel::automatic multiplies the matrices in fp32, rounding every result to
/// bf16, on CPUs without units for bf16, where LibTorch's bf16 product is a
/// hundred times slower; Kernel::stock takes that product, bit for bit
/// Python's.
class AMPKIT_API Muon : public TypedOptimizer<MuonOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
};

} // namespace ampkit::optim
