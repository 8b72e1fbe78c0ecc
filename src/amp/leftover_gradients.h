#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "amp/flag.h"
#include "amp/gradients.h"

namespace ampkit {

/// Tells gradients that were inf or NaN before backward from those that
/// backward made so: it remembers the gradients of a skipped step and looks,
/// when the next backward begins, whether somebody cleared them. No gradient is
/// read: what nobody wrote to is as bad as it was.
///
/// Shared with hooks, which outlive the scaler if a graph does.
class LeftoverGradients {
 public:
  using Owner = const void*; // an optimizer

  /// After a step on `gradients` that was skipped if `bad`.
  void remember(
      Owner owner, const std::vector<Gradient>& gradients, const Flag& bad);

  /// The iteration is over: what was remembered in it counts from now on.
  void next_iteration();

  /// Whether what is remembered could still be there.
  bool any() const;

  /// What a backward pass that begins now would add to.
  void look();

  /// Whether a look found bad gradients of `owner` in this iteration.
  Flag found(Owner owner) const;

 private:
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    WeakTensor parameter;
    WeakTensor gradient;
    uint32_t version = 0;
    bool is_untouched() const;
  };
  struct Step {
    Owner owner = nullptr;
    Flag bad;
    std::vector<Entry> entries;
    bool any_untouched() const;
  };

  std::vector<Step> remembered_; // in this iteration
  std::vector<Step> watched_; // of the one before
  std::map<Owner, Flag> found_;
};

/// Has `leftovers` look when the backward pass of `loss` begins.
void look_before_backward(
    const at::Tensor& loss,
    const std::shared_ptr<LeftoverGradients>& leftovers);

} // namespace ampkit
