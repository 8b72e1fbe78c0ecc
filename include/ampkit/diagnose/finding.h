#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/diagnose/tensor_summary.h>
#include <ampkit/diagnose/verdict.h>
#include <ampkit/export.h>

namespace ampkit::diagnose {

/// The part of a step that an op belongs to.
enum class Direction : uint8_t { forward, backward, optimizer };

/// Where the first value that is not finite, or that vanished, was born.
struct AMPKIT_API Finding {
  Verdict verdict = Verdict::invalid_operation;
  Direction direction = Direction::forward;

  /// The innermost op: "aten::div". Empty if none is known: the update of an
  /// optimizer that does not go through LibTorch's ops. For bad input or a bad
  /// parameter, the first op that used it.
  std::string op;
  /// The op that the code called, around `op`: "aten::cross_entropy_loss".
  std::string caller;
  /// In backward: the op of the forward pass that `op` is the gradient of, and
  /// the node of the graph ("SqrtBackward0").
  std::string forward_op;
  std::string node;

  /// Path of the module: that whose parameter the op (in backward, its forward
  /// op) uses, else the closest one around the modules used before and after
  /// it; of the network itself: empty.
  std::string module;
  /// The modules used just before and after an op that uses no parameter.
  std::string after;
  std::string before;
  /// The parameter or buffer that the op uses, or that is bad itself.
  std::string parameter;
  /// The input of Watch::Step::input() that was bad, and which sample.
  std::string input;
  int64_t sample = -1;
  /// Of TorchScript that was saved with it: "net.py:12:8".
  std::string source_line;

  int64_t step = 0;
  int64_t micro_batch = 0;
  int rank = 0;

  /// Statistics of the op's tensor arguments, in their order, and of its
  /// result. Of an argument that it wrote into, and in sampling mode on a
  /// device other than the CPU: nothing (dtype Undefined).
  std::vector<TensorSummary> inputs;
  TensorSummary output;
  /// Largest magnitude of the result in float64, if it is finite there.
  std::optional<double> wide_amax;
  /// How many ops it spread to within the step.
  int64_t spread = 0;
};

/// Several lines: verdict, place, numbers and what to do.
AMPKIT_API std::string to_string(const Finding& finding);

/// "forward"
AMPKIT_API std::string to_string(Direction direction);

} // namespace ampkit::diagnose
