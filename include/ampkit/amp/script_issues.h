#pragma once

#include <string>
#include <vector>

#include <ampkit/export.h>

namespace torch::jit {
struct Module;
} // namespace torch::jit

namespace ampkit {

/// What keeps a TorchScript module from training as its Python original does.
/// Values are added at the end.
enum class ScriptIssue {
  /// It has no parameter: torch.jit.freeze() made them constants. Refused.
  no_parameters,
  /// No parameter requires a gradient. Refused.
  no_gradients,
  /// Quantized or prepacked ops, which have no gradient. Refused.
  inference_only,
  /// An autocast block inside the script: the graph executor applies it in some
  /// modes and ignores it in others, also autocast(enabled=False). Refused.
  own_autocast,
  /// Weights are cast to 16 bits inside the graph, as tracing under autocast
  /// does: it computes in that dtype whatever the guard says. Refused.
  cast_weights,
  /// torch.jit.fork(): other threads, which don't get the executor's settings.
  /// Refused.
  forks,
  /// A dropout or normalisation whose mode was fixed by tracing, so that
  /// train() and eval() have no effect on it. A warning.
  fixed_mode,
  /// Floating-point tensors that are constants of the graph: never trained. A
  /// warning.
  constant_tensors,
  /// Casts of activations to fp16, bf16 or fp64, written as constants: there
  /// the guard's dtype does not reach. A warning.
  constant_dtype,
};

/// The name of the enumerator.
AMPKIT_API std::string to_string(ScriptIssue issue);

/// One finding of find_script_issues().
struct ScriptFinding {
  ScriptIssue issue = ScriptIssue::no_parameters;
  /// Whether a ScriptModule refuses it, unless told to accept it.
  bool refused = false;
  /// What was found, where in the Python source, and what to do.
  std::string message;
};

/// Looks at the parameters and, functions inlined, at the graph of every method
/// of `module`; each issue is reported once. Runs and changes nothing.
AMPKIT_API std::vector<ScriptFinding> find_script_issues(
    const torch::jit::Module& module);

} // namespace ampkit
