#pragma once

#include <string>
#include <vector>

#include <ATen/record_function.h>

namespace ampkit::diagnose {

/// Notes the names of the ops that the calling thread runs while it lives, as
/// OpPolicy knows them: those that code calls, not those inside ops or in
/// backward, and only such as a policy can decide about.
class TopLevelOps {
 public:
  /// Adds to `names`, each once, in the order of their first call.
  explicit TopLevelOps(std::vector<std::string>& names);
  ~TopLevelOps();
  TopLevelOps(const TopLevelOps&) = delete;
  TopLevelOps(TopLevelOps&&) = delete;
  TopLevelOps& operator=(const TopLevelOps&) = delete;
  TopLevelOps& operator=(TopLevelOps&&) = delete;

 private:
  std::vector<std::string>& names_;
  at::CallbackHandle handle_;
};

} // namespace ampkit::diagnose
