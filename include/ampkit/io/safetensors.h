#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <ampkit/export.h>

namespace ampkit::io {

namespace detail {
class MappedFile;
} // namespace detail

/// What the header of a safetensors file says of one tensor.
struct TensorInfo {
  std::string name;
  c10::ScalarType dtype;
  /// As LibTorch counts: a float4_e2m1fn_x2 element is a pair of values, so
  /// that its last dimension is half of the one in the file.
  std::vector<int64_t> sizes;
  /// First byte of the values, counted from the beginning of the file.
  uint64_t offset;
  uint64_t byte_size;
};

/// Free texts in the header of a file.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// Names and tensors in the order in which the header lists them.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// A safetensors file, mapped into memory and opened for reading.
///
///     io::SafetensorsReader reader("model.safetensors");
///     for (const auto& info : reader.tensors()) {
///       at::Tensor weight = reader.view(info.name);
///     }
///
/// Opening reads and checks the header only. The whole header is checked before
/// anything is given out: offsets must cover the file without gap or overlap,
/// and sizes must agree with them. dtypes: BOOL, U8 to U64, I8 to I64, F16,
/// BF16, F32, F64, C64, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ, F8_E8M0 and
/// F4; the six-bit kinds have no LibTorch counterpart and are refused.
///
/// Every call that finds the file unreadable or damaged throws
/// ampkit::CheckpointError naming file, tensor and byte. Safe to read from many
/// threads. The file must not be truncated while it is open (replace it by
/// renaming, as the writers here do); the kernel would answer with SIGBUS.
/// Format: https://huggingface.co/docs/safetensors
class AMPKIT_API SafetensorsReader {
 public:
  explicit SafetensorsReader(std::string path);

  const std::string& path() const { return path_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  /// In the order of the header.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const;
  const TensorInfo& info(std::string_view name) const;

  /// A CPU tensor that shares the mapping and keeps it alive after the reader
  /// is gone; pages are read when they are touched. Writing to it changes
  /// private pages, never the file. The values are copied instead where their
  /// place in the file does not fit the dtype's alignment.
  at::Tensor view(std::string_view name) const;

  /// A CPU tensor with memory of its own.
  at::Tensor copy(std::string_view name) const;

  /// The raw values of a tensor; valid while the reader lives.
  std::span<const std::byte> bytes(std::string_view name) const;

  /// The length prefix and the JSON text, as they stand in the file.
  std::span<const std::byte> header_bytes() const;

 private:
  std::string path_;
  std::shared_ptr<const detail::MappedFile> file_;
  uint64_t header_size_ = 0;
  SafetensorsMetadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> places_;
};

/// Writes `tensors` to `path`, atomically and durably: into a temporary file of
/// the same folder, synced, renamed over `path`, and the folder synced. A
/// failure at any point leaves what was at `path` before.
///
/// `tensors`: any size, 0-d and empty ones too; strided, on any device, of the
/// dtypes that SafetensorsReader lists. Non-contiguous tensors and those of
/// another device are copied, one at a time (waits for the device). Tensors
/// that share memory are each written in full. The header keeps their order;
/// the values are laid out by falling alignment, so that they can be mapped.
///
/// Throws c10::ValueError, having written nothing, if a name is empty, given
/// twice, reserved ("__metadata__") or not UTF-8, or a dtype or layout has no
/// place in the format; ampkit::CheckpointError if the file cannot be written.
AMPKIT_API void save_safetensors(
    const std::string& path,
    const NamedTensors& tensors,
    const SafetensorsMetadata& metadata = {});

/// Every tensor of a file, copied, in the order of the header.
AMPKIT_API NamedTensors load_safetensors(const std::string& path);

} // namespace ampkit::io
