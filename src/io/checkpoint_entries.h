#pragma once

#include <string>
#include <vector>

#include <ampkit/io/state_dict.h>

namespace ampkit::io {

/// One entry of a StateDict as a checkpoint's header lists it.
struct CheckpointEntry {
  std::string name;
  bool is_tensor = false;
  std::string checksum; // of a tensor
  StateValue scalar; // of anything else
};

/// All entries of `state` in order, as JSON: [name, kind, value] each, where
/// the value of a tensor is its checksum: `checksums` has one for each tensor,
/// in order. Throws c10::ValueError if a text is not UTF-8.
std::string write_entries(
    const StateDict& state, const std::vector<std::string>& checksums);

/// The reverse; throws CheckpointError naming `path`.
std::vector<CheckpointEntry> read_entries(
    const std::string& path, const std::string& text);

} // namespace ampkit::io
