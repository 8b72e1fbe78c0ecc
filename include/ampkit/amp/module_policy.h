#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn
namespace torch::jit {
struct Module;
} // namespace torch::jit

namespace ampkit {

class ModuleBinding;

/// A ModulePolicy that knows the parameters of one network. Copies share it;
/// it keeps the parameters alive.
class AMPKIT_API BoundModulePolicy {
 public:
  /// From ModulePolicy::bind() or a PrecisionController.
  explicit BoundModulePolicy(std::shared_ptr<ModuleBinding> binding);

  /// A module that has parameters of its own, and its dtype; Undefined: the
  /// region's.
  struct Entry {
    std::string path;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    std::string pattern; ///< the rule that decided; empty: none
    int64_t parameters = 0; ///< elements of its own
  };
  /// In the order of the network's modules.
  std::vector<Entry> entries() const;

  const std::shared_ptr<ModuleBinding>& binding() const { return binding_; }

 private:
  std::shared_ptr<ModuleBinding> binding_;
};

/// Which modules run in which dtype inside ampkit::Autocast regions, by
/// patterns of module paths.
///
///     ampkit::ModulePolicy policy;
///     policy.set("encoder.*.ffn", torch::kFloat);
///     policy.set("head", torch::kFloat, "logits of a large vocabulary");
///     const auto modules = policy.bind(*model);
///     ampkit::Autocast autocast(device, precision, {.modules = modules});
///
/// A path is that of named_modules(): names joined by dots, empty for the
/// network itself. A pattern names the modules it matches and all below them:
/// `*` stands for one name or a part of one, `**` for any number of names. The
/// last rule that matches decides.
///
/// An op belongs to the module whose parameter it uses, also through a view, so
/// any torch::nn::Module and any TorchScript module works without being
/// wrapped; an op that uses none (the products inside an attention) goes with
/// the op before it. With Float, what would be cast to 16 bits stays float32;
/// with Half or BFloat16, what would be cast goes to that dtype. Results keep
/// that dtype until the next op casts them.
///
/// A value. Reading is thread-safe.
class AMPKIT_API ModulePolicy {
 public:
  struct Rule {
    std::string pattern;
    c10::ScalarType dtype = c10::ScalarType::Float;
    std::string reason;
    /// Whether a network in which it matches nothing is no error.
    bool optional = false;
    bool operator==(const Rule&) const = default;
  };

  /// Adds a rule. Throws c10::ValueError, changing nothing, if `dtype` is not
  /// Float, Half or BFloat16, or the pattern has an empty name ("a..b").
  ModulePolicy& set(
      std::string pattern, c10::ScalarType dtype, std::string reason = {});
  ModulePolicy& set(Rule rule);

  const std::vector<Rule>& rules() const { return rules_; }

  /// Finds the modules. Throws c10::ValueError if the pattern of a rule that is
  /// not optional matches no module with parameters, with the paths that come
  /// nearest.
  BoundModulePolicy bind(const torch::nn::Module& module) const;
  BoundModulePolicy bind(const torch::jit::Module& module) const;

  /// A rule and how many modules of a network run by it: 0 if it matches none,
  /// or a later one decides for all it matches.
  struct RuleUse {
    Rule rule;
    int64_t modules = 0;
  };
  /// In the order of rules(); `bound` is what bind() gave.
  std::vector<RuleUse> uses(const BoundModulePolicy& bound) const;

  bool operator==(const ModulePolicy&) const = default;

 private:
  std::vector<Rule> rules_;
};

/// The network as a tree, one module a line, with its dtype, the pattern that
/// decided and the number of parameters.
AMPKIT_API std::string to_string(const BoundModulePolicy& policy);

} // namespace ampkit
