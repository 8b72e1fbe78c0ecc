#pragma once

#include <string>
#include <vector>

#include "amp/recompute_frame.h"

namespace ampkit::recompute_detail {

/// Catches what one recomputation saves.
class RecomputeRun : public SavedTensorTarget {
 public:
  /// `kinds`: what forward saved. `only`: the one value wanted; none: all.
  RecomputeRun(
      const std::vector<std::weak_ptr<const SavedKind>>& kinds,
      std::optional<size_t> only,
      const RecomputeOptions& options);

  /// `kept`: null if no results were to be kept.
  void call(
      const Scope::Rerun& rerun,
      const std::vector<at::Tensor>& inputs,
      const Surroundings& surroundings,
      KeptResults* kept);

  /// Throws if it was not the same as forward. `forward_ended`: whether that
  /// has saved all that it will.
  void check(bool forward_ended) const;

  /// Undefined where not wanted.
  std::vector<SavedValue> take() { return std::move(values_); }

  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  void add(const at::Tensor& tensor);

 private:
  const std::vector<std::weak_ptr<const SavedKind>>& kinds_;
  std::optional<size_t> only_;
  RecomputeOptions options_;
  std::vector<SavedValue> values_;
  size_t needed_; // tensors to be seen
  size_t count_ = 0; // seen so far
  std::string difference_; // the first
};

} // namespace ampkit::recompute_detail
