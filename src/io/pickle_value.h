#pragma once

#include <cstddef>

#include <ampkit/io/torch_value.h>

#include "io/pickle_node.h"

namespace ampkit::io {

inline constexpr size_t kMostPickleLevels = 100;

/// `root` as a tree. Throws PickleProblem for values that have no place in one
/// (classes, storages, keys that are neither integers nor texts), for more
/// levels than kMostPickleLevels, and for a pickle of `pickle_size` bytes that
/// mentions the same values again and again until they fill the memory.
TorchValue to_torch_value(const PickleNode& root, size_t pickle_size);

} // namespace ampkit::io
