#include <ampkit/io/checkpoint_directory.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>

#include <c10/util/Exception.h>

#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>

#include "io/atomic_file.h"
#include "io/file_error.h"

namespace ampkit::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStem = "step-";
constexpr std::string_view kExtension = ".safetensors";
constexpr size_t kDigits = 12; // so that names sort by step
constexpr const char* kStep = "step";
constexpr const char* kMetric = "metric";

// "0x1.8p+0": exact, and not subject to the locale when read by from_chars.
std::string exact_text(double value) {
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::hex);
  return {text, end.ptr};
}

std::optional<double> parse_exact(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto result =
      std::from_chars(text.data(), end, value, std::chars_format::hex);
  if (result.ec != std::errc() || result.ptr != end) {
    return std::nullopt;
  }
  return value;
}

// The step in the name of a checkpoint file; none for any other file.
std::optional<int64_t> step_of(const std::string& filename) {
  if (!filename.starts_with(kStem) || !filename.ends_with(kExtension) ||
      filename.size() < kStem.size() + kExtension.size()) {
    return std::nullopt;
  }
  int64_t step = 0;
  const char* begin = filename.data() + kStem.size();
  const char* end = filename.data() + filename.size() - kExtension.size();
  const auto result = std::from_chars(begin, end, step);
  if (result.ec != std::errc() || result.ptr != end || step < 0) {
    return std::nullopt;
  }
  return step;
}

std::vector<fs::path> files_in(const std::string& folder) {
  std::error_code code;
  std::vector<fs::path> files;
  for (fs::directory_iterator item(folder, code), end; !code && item != end;
       item.increment(code)) {
    files.push_back(item->path());
  }
  AMPKIT_CHECK_CHECKPOINT(
      !code, "CheckpointDirectory: cannot read ", folder, ": ", code.message());
  return files;
}

void remove_file(const std::string& path) {
  std::error_code code;
  fs::remove(path, code);
  AMPKIT_CHECK_CHECKPOINT(
      !code, "CheckpointDirectory: cannot remove ", path, ": ", code.message());
}

CheckpointFile read_file(const fs::path& path, int64_t step) {
  CheckpointFile file{.path = path.string(), .step = step};
  try {
    const auto metadata = load_checkpoint_metadata(file.path);
    if (const auto found = metadata.find(kMetric); found != metadata.end()) {
      file.metric = parse_exact(found->second);
    }
  } catch (const CheckpointError& error) {
    file.damage = error.msg();
  }
  return file;
}

// The one with the best metric, the later one among equals.
const CheckpointFile* best_of(
    const std::vector<CheckpointFile>& files, BestMetric order) {
  const double sign = order == BestMetric::kHighest ? 1 : -1;
  const CheckpointFile* best = nullptr;
  double best_metric = 0;
  for (const auto& file : files) {
    const double metric = sign * file.metric.value_or(NAN);
    if (!std::isnan(metric) && (best == nullptr || metric >= best_metric)) {
      best = &file;
      best_metric = metric;
    }
  }
  return best;
}

LoadedCheckpoint load(const CheckpointFile& file) {
  return {.state = load_checkpoint(file.path).state, .file = file};
}

} // namespace

CheckpointDirectory::CheckpointDirectory(
    std::string path, const CheckpointDirectoryOptions& options)
    : path_(std::move(path)), options_(options) {
  TORCH_CHECK_VALUE(
      options.keep_last >= 1,
      "CheckpointDirectory: keep_last should be >= 1, got ",
      options.keep_last);
  std::error_code code;
  fs::create_directories(path_, code);
  AMPKIT_CHECK_CHECKPOINT(
      !code,
      "CheckpointDirectory: cannot create ",
      path_,
      ": ",
      code.message());
  for (const auto& file : files_in(path_)) {
    if (is_temporary_name(file.filename().string(), kStem)) {
      remove_if_abandoned(file.string());
    }
  }
}

std::string CheckpointDirectory::path_of(int64_t step) const {
  std::string digits = std::to_string(step);
  digits.insert(0, kDigits - std::min(kDigits, digits.size()), '0');
  return (fs::path(path_) /
          (std::string(kStem) + digits + std::string(kExtension)))
      .string();
}

std::string CheckpointDirectory::save(
    int64_t step, const StateDict& state, std::optional<double> metric) {
  TORCH_CHECK_VALUE(
      step >= 0, "CheckpointDirectory::save: step should be >= 0, got ", step);
  const auto last = latest();
  TORCH_CHECK(
      !last || last->step <= step,
      "CheckpointDirectory::save: ",
      path_,
      " has a checkpoint of step ",
      last ? last->step : 0,
      ", got the earlier step ",
      step,
      "; call remove_after() with the step that the run went on from");
  SafetensorsMetadata metadata{{kStep, std::to_string(step)}};
  if (metric) {
    metadata[kMetric] = exact_text(*metric);
  }
  std::string path = path_of(step);
  save_checkpoint(path, state, metadata);
  remove_old();
  return path;
}

void CheckpointDirectory::remove_old() const {
  const auto files = list();
  const CheckpointFile* best = best_of(files, options_.best);
  const auto keep = static_cast<size_t>(options_.keep_last);
  for (size_t i = 0; i + keep < files.size(); ++i) {
    if (&files[i] != best) {
      remove_file(files[i].path);
    }
  }
}

std::vector<CheckpointFile> CheckpointDirectory::list() const {
  std::vector<CheckpointFile> files;
  for (const auto& path : files_in(path_)) {
    if (const auto step = step_of(path.filename().string())) {
      files.push_back(read_file(path, *step));
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return a.step < b.step;
  });
  return files;
}

std::optional<CheckpointFile> CheckpointDirectory::latest() const {
  auto files = list();
  if (files.empty()) {
    return std::nullopt;
  }
  return std::move(files.back());
}

std::optional<CheckpointFile> CheckpointDirectory::best() const {
  const auto files = list();
  for (const auto& file : files) {
    AMPKIT_CHECK_CHECKPOINT(
        file.damage.empty(),
        "CheckpointDirectory::best: one checkpoint is damaged, so that the "
        "best is not known; remove it to go on: ",
        file.damage);
  }
  const CheckpointFile* best = best_of(files, options_.best);
  return best == nullptr ? std::nullopt : std::optional(*best);
}

std::optional<LoadedCheckpoint> CheckpointDirectory::load_latest() const {
  const auto file = latest();
  if (!file) {
    return std::nullopt;
  }
  try {
    return load(*file);
  } catch (const CheckpointError& error) {
    AMPKIT_CHECK_CHECKPOINT(
        false,
        error.msg(),
        "; load_latest_intact() goes back to an earlier checkpoint");
    throw;
  }
}

std::optional<LoadedCheckpoint> CheckpointDirectory::load_latest_intact()
    const {
  std::vector<std::string> passed_over;
  auto files = list();
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    try {
      auto loaded = load(*file);
      loaded.passed_over = std::move(passed_over);
      return loaded;
    } catch (const CheckpointError& error) {
      TORCH_WARN("passing over a damaged checkpoint: ", error.msg());
      passed_over.push_back(error.msg());
    }
  }
  AMPKIT_CHECK_CHECKPOINT(
      passed_over.empty(),
      "CheckpointDirectory: no checkpoint in ",
      path_,
      " is intact:\n  ",
      c10::Join("\n  ", passed_over));
  return std::nullopt;
}

std::optional<LoadedCheckpoint> CheckpointDirectory::load_best() const {
  const auto file = best();
  return file ? std::optional(load(*file)) : std::nullopt;
}

void CheckpointDirectory::remove_after(int64_t step) {
  for (const auto& path : files_in(path_)) {
    if (step_of(path.filename().string()).value_or(step) > step) {
      remove_file(path.string());
    }
  }
  sync_folder(path_);
}

} // namespace ampkit::io
