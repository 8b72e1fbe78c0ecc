#pragma once

#include <ampkit/zoo/models/gpt.h>

namespace ampkit::bench {

/// The sizes of peer/gpt.py.
inline zoo::GptOptions small_gpt(bool recompute = false) {
  return {
      .vocabulary = 1024,
      .width = 256,
      .layers = 4,
      .heads = 4,
      .length = 128,
      .tied_head = false,
      .recompute = recompute};
}

} // namespace ampkit::bench
