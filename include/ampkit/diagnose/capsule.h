#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::diagnose {

/// Why a step was saved.
enum class CapsuleReason : uint8_t {
  bad_loss, ///< its loss is inf or NaN, the first of a row
  skips, ///< as many steps in a row were skipped as CapsuleOptions::skips
  asked, ///< somebody wanted it
};

/// "its loss is not finite"
AMPKIT_API std::string to_string(CapsuleReason reason);

/// One training step, as it was before it began, with what it was given and
/// what came of it: enough to do it again elsewhere, to the last bit. A
/// CapsuleRecorder makes them, replay() runs them.
struct AMPKIT_API Capsule {
  int64_t step = 0;
  int rank = 0;
  int world_size = 1; ///< ranks that made the step together
  CapsuleReason reason = CapsuleReason::asked;

  /// Weights, buffers, optimizer with masters, scaler and whatever else the
  /// program's state_dict() had, before the step; "rng.cpu" and so on are the
  /// random generators before its forward pass.
  io::StateDict state;
  /// The tensors of each micro-batch, by name; on the CPU.
  std::vector<io::StateDict> batches;

  /// Largest magnitude of each parameter, by name, when recording began: tells
  /// weights that blew up from an overflow of its own. May be empty.
  io::StateDict first_amax;

  /// What the program needs to build the model again, in its own words: for
  /// ampkit train the configuration in TOML.
  std::string config;
  /// The precision policy in TOML; empty: none.
  std::string policy;
  /// Faults that were planted, one a line, as Fault::parse() reads them.
  std::string faults;

  /// What came of the step: its loss (any shape; undefined: not known),
  /// StepResult::describe() and grad_norm().
  at::Tensor loss;
  std::string outcome;
  double grad_norm = std::numeric_limits<double>::quiet_NaN();

  /// Where it ran: versions, and threads inside an op, on which sums depend.
  std::string ampkit_version;
  std::string torch_version;
  int64_t threads = 0;

  /// Where it was loaded from.
  std::string path;
};

/// Reads a capsule: a file, a folder of them (the latest), or the folder of a
/// run with a folder `capsules`.
///
/// Throws ampkit::CheckpointError, naming the file and the entry or byte, if
/// there is none, if it is damaged, was written by something else, or by a
/// later version.
AMPKIT_API Capsule load_capsule(const std::string& path);

/// The capsules of `path`, as load_capsule() takes it, by rising step: the
/// paths of their files. Empty if there are none.
AMPKIT_API std::vector<std::string> find_capsules(const std::string& path);

/// One state that a capsule is written as, and back. capsule_of() throws
/// ampkit::CheckpointError naming `path` if `state` is no capsule's.
AMPKIT_API io::StateDict state_of(const Capsule& capsule);
AMPKIT_API Capsule
capsule_of(const io::StateDict& state, const std::string& path);

} // namespace ampkit::diagnose
