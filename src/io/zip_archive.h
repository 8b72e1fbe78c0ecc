#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ampkit::io {

namespace detail {
class MappedFile;
} // namespace detail

/// A zip file as torch.save() writes it: stored without compression, all
/// records under one folder, which the names here leave out.
///
/// LibTorch's PyTorchStreamReader is not used because it is built without the
/// check of the checksums. Every error is a CheckpointError "<who>: <path>:
/// ..." naming the record and the byte of the file. Reading is thread-safe.
class ZipArchive {
 public:
  /// Checks the directory of the file: that records lie inside the file, do
  /// not overlap and have different names.
  ZipArchive(const char* who, std::string path);

  const std::string& path() const { return path_; }
  bool contains(std::string_view name) const;

  /// The bytes of a record, valid while this lives. Throws if there is none, or
  /// if `verify` and they do not have the checksum of the directory.
  std::span<const std::byte> record(std::string_view name, bool verify) const;

 private:
  struct Entry {
    uint64_t offset = 0; // of the local header
    uint64_t size = 0; // in the file
    uint32_t crc = 0;
    bool stored = false; // neither compressed nor encrypted
  };
  struct Directory {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t count = 0;
  };
  // What the entry of the directory at one byte says, and its own size.
  struct Parsed {
    std::string name;
    Entry entry;
    uint64_t size = 0;
  };

  template <class... Parts>
  void check(bool condition, const Parts&... parts) const;
  std::span<const std::byte> bytes() const;
  uint64_t number(uint64_t offset, size_t width) const;
  uint64_t find_end() const;
  Directory find_directory() const;
  void read_directory();
  Parsed read_entry(uint64_t offset, uint64_t end) const;
  void read_large_sizes(
      uint64_t offset, uint64_t end, uint64_t unpacked, Parsed& parsed) const;
  void check_extents() const;
  uint64_t data_offset(const std::string& name, const Entry& entry) const;

  const char* who_;
  std::string path_;
  std::shared_ptr<const detail::MappedFile> file_;
  std::string folder_; // with its slash
  std::map<std::string, Entry, std::less<>> entries_;
};

} // namespace ampkit::io
