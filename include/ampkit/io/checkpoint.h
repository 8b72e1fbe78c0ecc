#pragma once

#include <string>

#include <ampkit/export.h>
#include <ampkit/io/safetensors.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::io {

/// What load_checkpoint() gives back.
struct Checkpoint {
  /// Tensors are on the CPU, with memory of their own; entries in the order in
  /// which they were saved.
  StateDict state;
  /// The texts that were given to save_checkpoint().
  SafetensorsMetadata metadata;
};

/// Writes `state` as one safetensors file, which any reader of that format
/// opens. Tensors are tensors; scalars, the order of the entries and a checksum
/// for each tensor and for the header are in the metadata, under names that
/// begin with "ampkit.". Numbers come back bit for bit, infinities and NaN too.
///
/// Atomic and durable as save_safetensors() is, with the same rules for the
/// tensors and the same errors; c10::ValueError besides if a text is not UTF-8
/// or a name in `metadata` begins with "ampkit.". Tensors are read while the
/// call runs: don't change them from another thread. Waits for the device.
AMPKIT_API void save_checkpoint(
    const std::string& path,
    const StateDict& state,
    const SafetensorsMetadata& metadata = {});

/// Reads a file of save_checkpoint() and verifies every checksum.
///
/// Throws ampkit::CheckpointError, naming the file and the tensor (or the
/// header), if any byte of the file differs from what was written, if it is
/// truncated or longer, if it was written by something else, or by a newer
/// version of the format.
AMPKIT_API Checkpoint load_checkpoint(const std::string& path);

/// The texts that were given to save_checkpoint(). Reads and verifies the
/// header only; errors as those of load_checkpoint().
AMPKIT_API SafetensorsMetadata
load_checkpoint_metadata(const std::string& path);

} // namespace ampkit::io
