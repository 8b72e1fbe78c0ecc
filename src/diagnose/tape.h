#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/diagnose/tensor_summary.h>

#include "diagnose/tensor_flags.h"

namespace ampkit::diagnose {

/// Where a value came from that no watched op made.
enum class Source : uint8_t { op, parameter, buffer, input, unknown };

/// What a storage held from one write to the next.
struct TapeValue {
  Flags flags;
  at::ScalarType dtype = at::ScalarType::Undefined;
  int32_t op = -1; ///< that made it; -1: a source
  Source source = Source::op;
  int32_t name = -1; ///< entry of NamedTensors, or number of the input
  int32_t pending = -1; ///< its place in Tape::pending until it is known
  bool single = false; ///< a source of one element: perhaps a scalar
  int32_t summary = -1; ///< of a bad source, in Tape::sources
  bool uninitialised = false; ///< what empty() gave: no matter what is in it
};

/// The same op in float64.
struct Replay {
  bool finite = false;
  double amax = 0; ///< of the outputs' finite elements
  double zeros = 0; ///< share of the first output
};

/// What was looked at on the spot because an op looked like a birth.
struct Evidence {
  std::vector<TensorSummary> inputs;
  TensorSummary output;
  std::optional<Replay> replay;
  std::string source_line;
};

struct TapeOp {
  std::string name; ///< "aten::div"
  std::string caller; ///< outermost op around it; empty: itself
  std::string node; ///< backward node around it; empty: forward
  int32_t module = -1; ///< whose tensor it uses
  int32_t named = -1; ///< that tensor, in NamedTensors
  int32_t forward_op = -1; ///< of a node: index into Tape::forward
  int64_t micro_batch = 0;
  std::vector<int32_t> inputs; ///< values
  int32_t output = -1; ///< the value it made (of several: the first bad one)
  bool constant_inf = false; ///< inf was among its scalar arguments
  bool in_backward = false;
  bool optimizer = false; ///< after the last backward node
  std::optional<Evidence> evidence;
  double lost = 0; ///< share of its output that float64 does not call zero
};

/// An op of the forward pass that a backward node may belong to.
struct ForwardOp {
  std::string name;
  std::string caller;
  int32_t module = -1;
  int32_t named = -1;
  int32_t previous_module = -1; ///< the last one used before it
  int32_t op = 0; ///< how many ops of the tape ended before it began
  int64_t micro_batch = 0;
};

/// Something that must be finite: a loss, a gradient, a parameter, an output.
struct Sink {
  enum class Kind : uint8_t { loss, gradient, named, output };
  Kind kind = Kind::loss;
  int32_t value = -1;
  int32_t name = -1; ///< of a named tensor
  double zeros = 0; ///< share in a gradient, if it was looked at
};

/// A module was used, in forward, before the op of this number.
struct ModuleUse {
  int32_t op = 0;
  int32_t module = -1;
  int64_t micro_batch = 0;
};

/// What one step did, in the order in which ops ended, innermost first.
struct Tape {
  std::vector<TapeOp> ops;
  std::vector<TapeValue> values;
  std::vector<ForwardOp> forward;
  std::vector<ModuleUse> modules;
  std::vector<Sink> sinks;
  std::vector<TensorSummary> sources;
  std::vector<at::Tensor> pending; ///< flags_on_device()
  bool had_backward = false;

  /// Fills in what was pending: uint8 [pending.size()] on the CPU.
  void resolve(const at::Tensor& bits);
};

} // namespace ampkit::diagnose
