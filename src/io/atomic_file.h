#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ampkit::io {

/// A file that appears under its name complete or not at all.
///
/// What is written goes to a temporary file in the same folder, which its
/// writer keeps locked; commit() syncs it, renames it over `path` and syncs the
/// folder. Destroyed without commit(), it removes the temporary file. Errors
/// are CheckpointError, naming `path`.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  void write_at(uint64_t offset, std::string_view text);

  /// Nothing may be written afterwards.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

/// Whether `filename` (without its folder) is that of a temporary file for a
/// file whose name begins with `stem`.
bool is_temporary_name(std::string_view filename, std::string_view stem);

/// Removes the temporary file at `path` if the process that wrote it is gone,
/// that is, if nobody holds its lock.
void remove_if_abandoned(const std::string& path);

/// Syncs a folder, so that a file renamed or removed in it stays so after a
/// power cut.
void sync_folder(const std::string& path);

} // namespace ampkit::io
