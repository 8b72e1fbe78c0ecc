#pragma once

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::io {

/// The state of LibTorch's default random generators: entry "cpu", and "cuda.0"
/// and so on for each CUDA device. Each is an uint8 tensor [n], equal to what
/// `torch.get_rng_state()` gives in Python. Waits for no device. Thread-safe.
AMPKIT_API StateDict rng_state();

/// Puts the generators back. The entry "cpu" must be there; CUDA devices that
/// the state does not name keep theirs.
///
/// Throws c10::Error, naming the entry and changing nothing, if an entry is
/// missing, unknown, not an uint8 tensor of the right length, or names a device
/// that is not there. Thread-safe.
AMPKIT_API void set_rng_state(const StateDict& state);

} // namespace ampkit::io
