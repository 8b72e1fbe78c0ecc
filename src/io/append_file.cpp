#include "io/append_file.h"

#include <cerrno>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <unistd.h>

#include "io/file_error.h"

namespace ampkit::io::detail {

AppendFile::AppendFile(std::string path, Open mode) : path_(std::move(path)) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC |
                    (mode == Open::kNew ? O_EXCL : 0);
  descriptor_ = open(path_.c_str(), flags, 0666);
  if (descriptor_ < 0) {
    throw_file_error("AppendFile", "open", path_);
  }
}

AppendFile::~AppendFile() {
  close(descriptor_);
}

void AppendFile::append(std::string_view piece) {
  const off_t before = lseek(descriptor_, 0, SEEK_END);
  ssize_t written = -1;
  do {
    written = write(descriptor_, piece.data(), piece.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(piece.size())) {
    return;
  }
  // A full disk takes part of it. The error to report is the first one.
  const int code = written < 0 ? errno : ENOSPC;
  if (written > 0) {
    truncate(static_cast<uint64_t>(before));
  }
  errno = code;
  throw_file_error("AppendFile", "append to", path_);
}

void AppendFile::truncate(uint64_t size) {
  if (ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    throw_file_error("AppendFile", "truncate", path_);
  }
}

void AppendFile::sync() {
  if (fsync(descriptor_) != 0) {
    throw_file_error("AppendFile", "sync", path_);
  }
}

std::string read_file(const char* who, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw_file_error(who, "read", path);
  }
  return content;
}

} // namespace ampkit::io::detail
