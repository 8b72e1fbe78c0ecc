#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ampkit::io::detail {

/// A whole file mapped into memory: pages are read when touched; a page that
/// is written becomes private, the file never changes.
class MappedFile {
 public:
  /// Throws CheckpointError if `path` is not a readable file or is empty; `who`
  /// opens the message.
  MappedFile(const char* who, const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

} // namespace ampkit::io::detail
