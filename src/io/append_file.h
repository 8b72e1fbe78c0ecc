#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ampkit::io::detail {

/// A file that only grows, by one write() for each piece, so that a process
/// that is killed leaves whole pieces and at most one torn at the end. Errors
/// are CheckpointError naming `path`.
class AppendFile {
 public:
  enum class Open { kNew, kExistingOrNew };

  /// With kNew, a file that is there already is an error.
  AppendFile(std::string path, Open mode);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// If the file cannot take the whole piece, takes none of it.
  void append(std::string_view piece);

  /// Cuts the file to its first `size` bytes.
  void truncate(uint64_t size);

  void sync();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_;
};

/// The content of a file; throws CheckpointError, in the name of `who`.
std::string read_file(const char* who, const std::string& path);

} // namespace ampkit::io::detail
