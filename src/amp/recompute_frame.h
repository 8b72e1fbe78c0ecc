#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/recompute.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "amp/recompute_generators.h"
#include "amp/saved_tensor_hooks.h"
#include "amp/selective_recompute.h"

namespace ampkit::recompute_detail {

/// What the result of an op depends on besides its inputs, as of its making.
struct Surroundings {
  explicit Surroundings(bool with_generators);

  AutocastState autocast;
  int module;
  GeneratorStates generators;
};

/// What is remembered of a tensor that is not kept.
struct SavedKind {
  explicit SavedKind(const at::Tensor& tensor);
  std::string text() const;
  bool operator==(const SavedKind& other) const = default;

  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;
  /// How often a parameter was changed in place; 0 for other tensors.
  int64_t version;
};

/// A tensor saved for backward, and how often it was changed in place then.
struct SavedValue {
  at::Tensor tensor;
  int64_t version = 0;
};

/// One call of checkpoint(), kept alive by the graph that needs its tensors.
class Frame : public SavedTensorTarget,
              public std::enable_shared_from_this<Frame> {
 public:
  Frame(
      const RecomputeOptions& options,
      const std::vector<at::Tensor>& inputs,
      Scope::Rerun rerun);

  /// Hooks that let a tensor go and ask value() for it.
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;

  /// Notes the next tensor that forward saves. Returns its index and what the
  /// hooks hold as long as it may be needed.
  std::pair<size_t, std::shared_ptr<const SavedKind>> add(
      const at::Tensor& tensor);

  /// Null if RecomputeOptions::save_results_of is empty.
  KeptResults* kept() { return kept_.has_value() ? &*kept_ : nullptr; }

  void end_forward() { forward_ended_ = true; }

  /// The tensor that forward saved as the `index`-th. The first that a backward
  /// pass asks for brings them all, and each is given away once.
  at::Tensor value(size_t index);

 private:
  std::vector<SavedValue> recompute(std::optional<size_t> only);
  void forget_after(int graph_task);

  RecomputeOptions options_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  Scope::Rerun rerun_;
  Surroundings surroundings_;
  std::optional<KeptResults> kept_;
  /// Of each saved tensor; expired once the graph has let go of it.
  std::vector<std::weak_ptr<const SavedKind>> kinds_;
  bool forward_ended_ = false;

  std::recursive_mutex mutex_; // devices' threads may ask at once
  int graph_task_ = -1; // of the backward pass that `values_` are for
  std::vector<SavedValue> values_;
};

} // namespace ampkit::recompute_detail
