#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ampkit/io/safetensors.h>

namespace ampkit::io {

/// One entry of a header as the text has it, before it is checked.
struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
};

struct RawHeader {
  SafetensorsMetadata metadata;
  std::vector<RawTensor> tensors;
};

/// Parses the text of a header, in its order. Throws CheckpointError if it is
/// not JSON (naming the byte; the text begins at byte `text_offset` of `path`),
/// gives a name twice, or has a value of the wrong kind.
RawHeader parse_header_json(
    const std::string& path, std::string_view text, uint64_t text_offset);

} // namespace ampkit::io
