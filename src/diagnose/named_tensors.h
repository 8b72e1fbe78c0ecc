#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "amp/module_binding.h"

namespace torch::nn {
class Module;
} // namespace torch::nn
namespace torch::jit {
struct Module;
} // namespace torch::jit

namespace ampkit::diagnose {

/// The parameters and buffers of a network, found by tensor, also through a
/// view; and the module that each belongs to.
class NamedTensors {
 public:
  struct Entry {
    std::string name; ///< "encoder.3.weight"
    int module = -1; ///< its number
    bool parameter = true; ///< else a buffer
    at::Tensor tensor; ///< alive, so that no address is used again
  };

  explicit NamedTensors(const torch::nn::Module& module);
  explicit NamedTensors(const torch::jit::Module& module);

  /// The number of the entry that `tensor` is or is a view of; else -1.
  int find(const at::Tensor& tensor) const;

  const std::vector<Entry>& entries() const { return entries_; }
  const Entry& entry(int number) const;
  const std::string& module_path(int module) const;

  /// Paths of all modules with parameters or buffers.
  std::vector<std::string> module_paths() const;

 private:
  void add(
      const std::string& path,
      const std::string& name,
      const at::Tensor& tensor,
      bool parameter);

  ModuleBinding modules_;
  std::unordered_map<std::string, int> by_path_;
  std::unordered_map<const c10::TensorImpl*, int> by_tensor_;
  std::vector<Entry> entries_;
};

} // namespace ampkit::diagnose
