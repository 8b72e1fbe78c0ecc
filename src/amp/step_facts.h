#pragma once

#include <ATen/core/Tensor.h>

#include <ampkit/amp/step_result.h>

#include "amp/bad_gradients.h"
#include "amp/flag.h"

namespace ampkit {

/// What a StepResult is read from.
struct StepFacts {
  Flag skipped;
  /// The loss was inf or NaN.
  Flag bad_loss;
  /// A gradient was inf or NaN before backward.
  Flag leftover;
  bool no_gradient = false;
  /// Another rank may be the reason.
  bool agreed = false;
  /// [], or undefined.
  at::Tensor grad_norm;
  BadGradients bad_gradients;

  /// A skip that no loss scale can cure.
  Flag fault() const { return skipped & (bad_loss | leftover); }
  Flag overflow() const { return skipped & !(bad_loss | leftover); }
};

} // namespace ampkit
