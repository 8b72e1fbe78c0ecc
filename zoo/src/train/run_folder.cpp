#include "train/run_folder.h"

#include <array>
#include <fstream>
#include <utility>

#include <ampkit/zoo/train/config.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;

template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) {
    throw ConfigError({__func__, __FILE__, __LINE__}, c10::str(parts...));
  }
}

// Present from the first moment of a run to the last.
constexpr const char* kMark = "config.toml";

bool belongs_to_run(const std::string& name) {
  static constexpr std::array kFiles{
      kMark,
      "precision_policy.toml",
      "machine.json",
      "metrics.jsonl",
      "checkpoints",
      "capsules",
      "report.html"};
  for (const std::string file : kFiles) {
    if (name == file || name == file + ".tmp") {
      return true;
    }
  }
  return name.starts_with("events.out.tfevents.") ||
         (name.starts_with("flight") &&
          (name.ends_with(".bin") || name.ends_with(".bin.previous")));
}

} // namespace

RunFolder::RunFolder(fs::path path, FolderUse use) : path_(std::move(path)) {
  std::error_code failure;
  fs::create_directories(path_, failure);
  check(
      fs::is_directory(path_),
      path_.string(),
      ": the folder of the run cannot be created: ",
      failure ? failure.message() : "it is a file");
  lock();
  try {
    check_contents(use);
    if (use == FolderUse::overwrite) {
      clear();
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

RunFolder::~RunFolder() {
  ::close(descriptor_); // and with it the lock
}

// The lock goes with the process, however that ends.
void RunFolder::lock() {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(descriptor_ >= 0, path_.string(), ": the folder cannot be opened");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor_);
    check(false, path_.string(), ": another process trains in this folder");
  }
}

void RunFolder::check_contents(FolderUse use) const {
  if (fs::is_empty(path_)) {
    return;
  }
  check(
      fs::exists(path_ / kMark),
      path_.string(),
      ": the folder is not empty and holds no run (no ",
      kMark,
      "); choose another with --output or output.name");
  check(
      use != FolderUse::fresh,
      path_.string(),
      ": there is a run in this folder; --resume goes on with it, --overwrite "
      "deletes it and begins anew");
}

void RunFolder::clear() const {
  for (const auto& entry : fs::directory_iterator(path_)) {
    const auto name = entry.path().filename().string();
    if (belongs_to_run(name) && name != kMark) {
      fs::remove_all(entry.path());
    }
  }
}

std::string RunFolder::file(const std::string& name) const {
  return (path_ / name).string();
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  const auto temporary = path_ / (name + ".tmp");
  std::ofstream out(temporary);
  out << text << std::flush;
  check(out.good(), temporary.string(), ": cannot be written");
  out.close();
  fs::rename(temporary, path_ / name);
}

} // namespace ampkit::zoo
