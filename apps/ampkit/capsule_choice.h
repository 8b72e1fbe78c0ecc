#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ampkit/diagnose/capsule.h>
#include <CLI/App.hpp>

namespace ampkit::app {

/// Which capsule a command works on.
struct CapsuleChoice {
  std::string path; ///< folder of a run, of capsules, or a file
  std::optional<int64_t> step;
  std::optional<int> rank;
};

/// Adds path, --step and --rank to `command`.
void add_capsule_options(CLI::App& command, CapsuleChoice& choice);

/// The latest that fits. Throws UsageError, with what there is, if none does;
/// CheckpointError if there is none at all, or one is damaged.
diagnose::Capsule choose_capsule(const CapsuleChoice& choice);

/// The name of the precision that its run had.
std::string precision_name_of(const diagnose::Capsule& capsule);

} // namespace ampkit::app
