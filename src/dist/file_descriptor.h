#pragma once

#include <utility>

#include <unistd.h>

namespace ampkit::dist {

/// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept
      : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

  /// Gives it away.
  int release() { return std::exchange(number_, -1); }

  void close() {
    if (number_ >= 0) {
      ::close(std::exchange(number_, -1));
    }
  }

 private:
  int number_ = -1;
};

/// The ends of a pipe, closed in programs that are started.
struct Pipe {
  /// Throws c10::Error if there are too many open files.
  Pipe();

  FileDescriptor read;
  FileDescriptor write;
};

} // namespace ampkit::dist
