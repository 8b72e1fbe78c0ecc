#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ampkit/io/safetensors.h>

#include "io/atomic_file.h"

namespace ampkit::io {

/// The longest header that Python's package accepts.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// "F32", ...; nullptr for a dtype that the format does not have.
const char* safetensors_dtype_name(c10::ScalarType dtype);

struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<TensorInfo> tensors;
  /// The length prefix and the text with its padding: where the values begin.
  uint64_t size = 0;
};

/// Reads and checks the header of a whole file; throws CheckpointError.
SafetensorsHeader parse_safetensors_header(
    const std::string& path, std::span<const std::byte> file);

/// Where in a new file each tensor goes.
class SafetensorsLayout {
 public:
  /// Checks names, dtypes and layouts; throws c10::ValueError. Keeps a
  /// reference to `tensors`.
  explicit SafetensorsLayout(const NamedTensors& tensors);

  /// Length prefix, text and padding; throws c10::ValueError if `metadata` is
  /// not UTF-8 or the header becomes too long.
  std::string header(const SafetensorsMetadata& metadata) const;

  /// Writes the values of all tensors after a header of `header_size` bytes.
  /// Shows each tensor's place in the list and its bytes to `visit`.
  void write_values(
      AtomicFile& file,
      uint64_t header_size,
      const std::function<void(size_t, std::span<const std::byte>)>& visit)
      const;

 private:
  const NamedTensors* tensors_;
  /// Places in the list, by falling alignment.
  std::vector<size_t> order_;
  /// Of each tensor of the list, counted from the end of the header.
  std::vector<uint64_t> offsets_;
};

} // namespace ampkit::io
