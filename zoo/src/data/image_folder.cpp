#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "data/data_check.h"
#include "data/image_file.h"
#include "data/memory_dataset.h"
#include "data/resize.h"

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSide = 65535;

struct Entry {
  std::string path; // below the data set's folder
  int64_t label;
};

class ImageFolder : public ImageDataset {
 public:
  ImageFolder(
      std::string dir,
      const ImageFolderOptions& options,
      std::vector<std::string> class_names,
      std::vector<Entry> entries)
      : dir_(std::move(dir)),
        options_(options),
        class_names_(std::move(class_names)),
        entries_(std::move(entries)) {}

  int64_t size() const override {
    return static_cast<int64_t>(entries_.size());
  }
  ImageShape shape() const override {
    return {3, options_.height, options_.width};
  }
  int64_t num_classes() const override {
    return static_cast<int64_t>(class_names_.size());
  }
  std::vector<std::string> class_names() const override { return class_names_; }

  void read(int64_t index, std::span<uint8_t> chw) const override {
    detail::check_index(*this, index);
    detail::check_buffer(*this, chw.size());
    const auto& entry = entries_[static_cast<size_t>(index)];
    const auto picture = detail::read_picture(dir_ + "/" + entry.path);
    detail::fit(picture, options_.height, options_.width, chw);
  }

  int64_t label(int64_t index) const override {
    detail::check_index(*this, index);
    return entries_[static_cast<size_t>(index)].label;
  }

  // ImageNet's, which the usual pretrained weights expect. Decoding a whole
  // folder for its own would take minutes.
  Normalization normalization() const override {
    return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  }

 private:
  std::string dir_;
  ImageFolderOptions options_;
  std::vector<std::string> class_names_;
  std::vector<Entry> entries_;
};

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

// Names in `dir` that aren't hidden, in order.
std::vector<fs::path> list(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    if (!is_hidden(it->path())) {
      found.push_back(it->path());
    }
  }
  AMPKIT_CHECK_DATA(
      !error,
      "open_image_folder: cannot list ",
      dir.string(),
      ": ",
      error.message());
  std::sort(found.begin(), found.end());
  return found;
}

void collect_images(
    const fs::path& folder, std::vector<fs::path>& found, int depth = 0) {
  constexpr int kMaxDepth = 16; // a link to a folder above never ends
  AMPKIT_CHECK_DATA(
      depth <= kMaxDepth,
      "open_image_folder: ",
      folder.string(),
      " lies more than ",
      kMaxDepth,
      " folders below its class; is there a link to a folder above?");
  for (const auto& path : list(folder)) {
    if (fs::is_directory(path)) {
      collect_images(path, found, depth + 1);
      continue;
    }
    AMPKIT_CHECK_DATA(
        is_image_name(path),
        "open_image_folder: ",
        path.string(),
        " is named neither .jpg, .jpeg nor .png; convert it, or move it out "
        "of the data");
    found.push_back(path);
  }
}

std::vector<Entry> collect_class(
    const fs::path& dir, const fs::path& folder, int64_t label) {
  std::vector<fs::path> images;
  collect_images(folder, images);
  AMPKIT_CHECK_DATA(
      !images.empty(),
      "open_image_folder: the class folder ",
      folder.string(),
      " has no images, expected at least one; remove it, or put JPEG or PNG "
      "files into it");
  std::vector<Entry> entries;
  for (const auto& image : images) {
    entries.push_back({image.lexically_relative(dir).string(), label});
  }
  return entries;
}

void check_side(const char* field, int64_t value) {
  TORCH_CHECK_VALUE(
      value >= 1 && value <= kMaxSide,
      "open_image_folder: ",
      field,
      " must be in [1, ",
      kMaxSide,
      "] pixels, got ",
      value);
}

} // namespace

std::shared_ptr<const ImageDataset> open_image_folder(
    const std::string& dir, const ImageFolderOptions& options) {
  check_side("height", options.height);
  check_side("width", options.width);
  std::vector<std::string> names;
  std::vector<Entry> entries;
  for (const auto& folder : list(dir)) {
    if (fs::is_directory(folder)) {
      const auto label = static_cast<int64_t>(names.size());
      auto found = collect_class(dir, folder, label);
      std::move(found.begin(), found.end(), std::back_inserter(entries));
      names.push_back(folder.filename().string());
    }
  }
  AMPKIT_CHECK_DATA(
      !names.empty(),
      "open_image_folder: there is no folder in ",
      dir,
      ", expected one a class, with JPEG or PNG files in it");
  return std::make_shared<ImageFolder>(
      dir, options, std::move(names), std::move(entries));
}

} // namespace ampkit::zoo
