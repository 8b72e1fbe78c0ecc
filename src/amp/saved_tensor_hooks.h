#pragma once

#include <memory>

#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace ampkit {

/// Decides how tensors are kept that autograd saves for backward.
class SavedTensorTarget {
 public:
  SavedTensorTarget() = default;
  virtual ~SavedTensorTarget() = default;
  SavedTensorTarget(const SavedTensorTarget&) = delete;
  SavedTensorTarget(SavedTensorTarget&&) = delete;
  SavedTensorTarget& operator=(const SavedTensorTarget&) = delete;
  SavedTensorTarget& operator=(SavedTensorTarget&&) = delete;

  /// For one tensor; its call_pack_hook() is called at once.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

/// torch.autograd.graph.saved_tensors_hooks: while it lives, tensors saved on
/// the calling thread go to `target`. Nests; the innermost counts.
///
/// LibTorch asks the default autograd engine for the hooks, and only that of
/// the Python bindings has any. The first scope puts an engine in front of the
/// present one, which it asks for everything else.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorTarget& target);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope(SavedTensorScope&&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(SavedTensorScope&&) = delete;

 private:
  SavedTensorTarget* before_;
};

} // namespace ampkit
