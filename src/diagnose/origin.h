#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "diagnose/tape.h"

namespace ampkit::diagnose {

/// Where a bad value began: an op, or a value that came from outside.
struct Origin {
  int32_t op = -1; ///< index into Tape::ops; of a source: the first to use it
  int32_t source = -1; ///< a value that no op made; -1: `op` made it
  Sink::Kind reached = Sink::Kind::loss;
  int64_t spread = 0; ///< ops after it that it made bad
};

/// Follows each bad value of a resolved tape to where it was born, and returns
/// the first birth that reached a loss, a gradient, a parameter or an output;
/// none if all of those are finite. An infinity that code put there on purpose
/// (the -inf of a mask) is the origin of nothing but itself.
std::optional<Origin> find_origin(const Tape& tape);

} // namespace ampkit::diagnose
