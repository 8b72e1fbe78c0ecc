#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ampkit {

/// Sees the output of every op that used a parameter of a bound module, inside
/// an autocast region, on the thread that ran the op.
class ModuleObserver {
 public:
  virtual ~ModuleObserver() = default;
  virtual void on_output(int module, const at::Tensor& output) = 0;
};

/// Modules found through their parameters: which module a tensor belongs to,
/// and the dtype that its ops are to run in.
class ModuleBinding {
 public:
  /// Adds a module; `path` is what messages call it, `pattern` the rule that
  /// chose its dtype. Returns its number.
  int add(std::string path, std::string pattern = {});

  /// Makes `parameter` (and views of it) belong to `module`. A tied parameter
  /// belongs to the module that claimed it first.
  void claim(const at::Tensor& parameter, int module);

  int size() const { return static_cast<int>(modules_.size()); }
  const std::string& path(int module) const;
  const std::string& pattern(int module) const;
  /// Elements of its own parameters.
  int64_t parameter_count(int module) const;

  /// Undefined: as the op policy says. May be called while other threads run.
  at::ScalarType dtype(int module) const;
  void set_dtype(int module, at::ScalarType dtype);

  /// The module that `tensor` is a parameter of, or a view of one; else -1.
  int find(const at::Tensor& tensor) const;

  /// Whether any module has a dtype of its own.
  bool decides() const { return decided_.load(std::memory_order_relaxed) > 0; }

  /// Not owned; null: none. Set while no region is open.
  ModuleObserver* observer = nullptr;

 private:
  struct Module {
    std::string path;
    std::string pattern;
    int64_t parameter_count = 0;
    std::atomic<at::ScalarType> dtype = at::ScalarType::Undefined;
  };
  std::deque<Module> modules_;
  std::unordered_map<const c10::TensorImpl*, int> by_parameter_;
  std::vector<at::Tensor> parameters_; // so that no address is used again
  std::atomic<int> decided_ = 0;
};

} // namespace ampkit
