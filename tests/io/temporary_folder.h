#pragma once

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <c10/util/Exception.h>

namespace ampkit::io {

/// An empty folder, removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "ampkit_io_XXXXXX").string();
    TORCH_CHECK(mkdtemp(pattern.data()) != nullptr, "mkdtemp ", pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

  /// The names in the folder, sorted.
  std::vector<std::string> filenames() const {
    std::vector<std::string> names;
    for (const auto& item : std::filesystem::directory_iterator(path_)) {
      names.push_back(item.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

/// While it lives, files of this process cannot grow beyond `bytes`: writes
/// fail as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes)
      : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    TORCH_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, "cannot read ", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::string& path, const std::string& content) {
  // ext4 syncs a file that is truncated and written again, which is slow.
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file << content;
  TORCH_CHECK(file.flush(), "cannot write ", path);
}

/// `content` with one to four bytes changed, or cut off, or both.
inline std::string damaged(std::string content, std::mt19937& random) {
  const auto below = [&](size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
  };
  const size_t changes = 1 + below(4);
  for (size_t i = 0; i < changes; ++i) {
    content[below(content.size())] = static_cast<char>(below(256));
  }
  if (below(4) == 0) {
    content.resize(below(content.size()));
  }
  return content;
}

/// Whether the large counts were asked for (scripts/test.sh --long).
inline bool long_run() {
  const char* value = std::getenv("AMPKIT_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

} // namespace ampkit::io
