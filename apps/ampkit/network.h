#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ampkit/amp/precision_policy.h>

namespace ampkit::app {

/// A module with parameters of its own, and what a policy does with it.
struct ModuleRow {
  std::string path;
  std::string type; ///< "BatchNorm2d"
  std::string runs_in; ///< "float32", "16 bits", "inputs'", "by op"
  int64_t parameters = 0;
  std::string by; ///< the op or the pattern that decided
  std::string reason;
};

/// A network under a policy.
struct NetworkReport {
  std::vector<ModuleRow> modules; ///< in the order of the network
  std::vector<ModulePolicy::RuleUse> rules;
};

/// A network that a user names: the file of a TorchScript module, the
/// configuration of a run, or a network of the zoo.
class Network {
 public:
  /// Throws UsageError, or what reading the file throws.
  explicit Network(const std::string& name);
  ~Network();

  NetworkReport report(
      const PrecisionPolicy& policy, c10::DeviceType device) const;

  /// precision.policy of the configuration; empty if it is none.
  const std::string& policy() const { return policy_; }

  /// What can be named besides files.
  static std::vector<std::string> names();

 private:
  struct Modules;
  std::unique_ptr<Modules> modules_;
  std::string policy_;
};

} // namespace ampkit::app
