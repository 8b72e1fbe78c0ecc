#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ampkit/error.h>

#include "io/file_error.h"

namespace ampkit::io::detail {
namespace {

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) {
      close(value);
    }
  }
};

} // namespace

MappedFile::MappedFile(const char* who, const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must not wait for its writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status{};
  if (file.value < 0 || fstat(file.value, &status) != 0) {
    throw_file_error(who, "open", path);
  }
  AMPKIT_CHECK_CHECKPOINT(
      S_ISREG(status.st_mode),
      who,
      ": ",
      path,
      " is not a file, so that it cannot be mapped");
  AMPKIT_CHECK_CHECKPOINT(status.st_size > 0, who, ": ", path, " is empty");
  const auto size = static_cast<size_t>(status.st_size);
  // Without NORESERVE the kernel refuses files larger than the memory, since
  // every page of a writable private mapping might become a copy.
  void* start = mmap(
      nullptr,
      size,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_NORESERVE,
      file.value,
      0);
  if (start == MAP_FAILED) {
    throw_file_error(who, "map", path);
  }
  bytes_ = {static_cast<std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    munmap(bytes_.data(), bytes_.size());
  }
}

} // namespace ampkit::io::detail
