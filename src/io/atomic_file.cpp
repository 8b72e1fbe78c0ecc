#include "io/atomic_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include "io/file_error.h"

namespace ampkit::io {
namespace {

constexpr const char* kMark = ".tmp-";

// Repeats a call that a signal has interrupted.
template <class Call>
auto retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

// Hidden, and different for every call and process of this machine.
std::string temporary_path(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  const auto name = std::filesystem::path(path).filename().string();
  return folder_of(path) + "/." + name + kMark + std::to_string(getpid()) +
         "-" + std::to_string(counter++);
}

// A new locked file. Between its creation and its lock, somebody who cleans
// the folder may take it for abandoned and unlink it: then it has no link.
int create_locked(const std::string& path, const std::string& temporary) {
  while (true) {
    const int descriptor = retry([&] {
      return open(
          temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    });
    if (descriptor < 0) {
      throw_file_error("AtomicFile", "create a temporary file for", path);
    }
    // Where locks are not supported the file is only less protected.
    retry([&] { return flock(descriptor, LOCK_EX); });
    struct stat status{};
    if (fstat(descriptor, &status) == 0 && status.st_nlink > 0) {
      return descriptor;
    }
    close(descriptor);
  }
}

} // namespace

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(temporary_path(path_)) {
  descriptor_ = create_locked(path_, temporary_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    unlink(temporary_.c_str());
    close(descriptor_);
  }
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  TORCH_INTERNAL_ASSERT(descriptor_ >= 0);
  constexpr size_t kMost = size_t{1} << 30; // Linux writes at most 2 GiB a call
  while (!bytes.empty()) {
    const auto written = retry([&] {
      return pwrite(
          descriptor_,
          bytes.data(),
          std::min(bytes.size(), kMost),
          static_cast<off_t>(offset));
    });
    if (written <= 0) {
      throw_file_error("AtomicFile", "write", path_);
    }
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::write_at(uint64_t offset, std::string_view text) {
  write_at(offset, std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  TORCH_INTERNAL_ASSERT(descriptor_ >= 0);
  if (retry([&] { return fsync(descriptor_); }) != 0) {
    throw_file_error("AtomicFile", "sync", path_);
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_file_error("AtomicFile", "rename a temporary file to", path_);
  }
  close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(path_));
}

bool is_temporary_name(std::string_view filename, std::string_view stem) {
  return filename.starts_with('.') && filename.substr(1).starts_with(stem) &&
         filename.find(kMark) != std::string_view::npos;
}

void remove_if_abandoned(const std::string& path) {
  const int descriptor =
      retry([&] { return open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (descriptor < 0) {
    return; // renamed or removed since the folder was listed
  }
  if (retry([&] { return flock(descriptor, LOCK_EX | LOCK_NB); }) == 0) {
    unlink(path.c_str());
  }
  close(descriptor);
}

void sync_folder(const std::string& path) {
  const int descriptor =
      retry([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (descriptor < 0) {
    throw_file_error("AtomicFile", "open the folder", path);
  }
  const int result = retry([&] { return fsync(descriptor); });
  const int code = errno;
  close(descriptor);
  // EINVAL: a file system whose folders cannot be synced.
  if (result != 0 && code != EINVAL) {
    errno = code;
    throw_file_error("AtomicFile", "sync the folder", path);
  }
}

} // namespace ampkit::io
