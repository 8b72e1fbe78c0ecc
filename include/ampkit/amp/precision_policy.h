#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/module_policy.h>
#include <ampkit/amp/op_policy.h>
#include <ampkit/export.h>

namespace ampkit {

/// Which op and which module runs in which dtype, as one value that has a name
/// or a file.
///
///     const auto policy = ampkit::PrecisionPolicy::preset("nlp");
///     const auto options = policy.bind(*model); // once
///     ...
///     ampkit::Autocast autocast(device, precision, options);
///
/// Reading is thread-safe.
struct AMPKIT_API PrecisionPolicy {
  OpPolicy ops;
  ModulePolicy modules;

  /// A policy by its name; entries and rules of it carry their reasons:
  ///
  /// - pytorch: LibTorch's own lists;
  /// - strict: OpPolicy::strict();
  /// - cv: pytorch with the norms in float32;
  /// - nlp: pytorch with norms, softmax and the output layer of feed-forward
  ///   blocks in float32. Those layers are found by the names they have in
  ///   common models (GPT-2, Llama, BERT, T5, torch::nn::TransformerEncoder);
  ///   a name that a network does not have is passed over;
  /// - speech: pytorch with norms, softmax, CTC and reductions over many
  ///   elements in float32.
  ///
  /// Throws c10::ValueError that lists the names for any other.
  static PrecisionPolicy preset(std::string_view name);

  /// The names that preset() knows.
  static const std::vector<std::string>& preset_names();

  /// Options of an Autocast for that network. Throws as ModulePolicy::bind().
  AutocastOptions bind(const torch::nn::Module& module) const;
  AutocastOptions bind(const torch::jit::Module& module) const;

  bool operator==(const PrecisionPolicy&) const = default;
};

/// Reads a policy from TOML, see docs/precision_policy.md. `source` stands for
/// the file's name in messages. Custom ops must have been registered before.
///
/// Throws c10::ValueError: source:line, key, what was expected and found, and
/// the nearest known name.
AMPKIT_API PrecisionPolicy
parse_precision_policy(std::string_view text, const std::string& source);

/// The same for a file. Throws c10::ValueError also if it cannot be read.
AMPKIT_API PrecisionPolicy load_precision_policy(const std::string& path);

/// TOML that parse_precision_policy() reads back to an equal policy.
AMPKIT_API std::string to_toml(const PrecisionPolicy& policy);

/// Writes to_toml() to a file, which appears complete or not at all. Throws
/// CheckpointError, naming the file, if it cannot be written.
AMPKIT_API void save_precision_policy(
    const std::string& path, const PrecisionPolicy& policy);

} // namespace ampkit
