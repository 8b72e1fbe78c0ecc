#pragma once

#include <filesystem>
#include <string>

namespace ampkit::zoo {

enum class FolderUse {
  fresh, ///< the folder must be missing or empty
  resume, ///< may hold a run
  overwrite, ///< may hold a run, which is deleted
};

/// The folder of one run, held against other processes while this lives.
class RunFolder {
 public:
  /// Creates the folder, or takes the existing one. Throws ConfigError, having
  /// changed nothing, if its contents do not allow `use`, if another process
  /// holds it, or if it cannot be created.
  RunFolder(std::filesystem::path path, FolderUse use);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Path of a file in it.
  std::string file(const std::string& name) const;
  /// Replaces a text file as a whole.
  void write(const std::string& name, const std::string& text) const;

 private:
  void check_contents(FolderUse use) const;
  void lock();
  void clear() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

} // namespace ampkit::zoo
