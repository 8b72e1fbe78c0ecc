#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>

#include "data/data_check.h"
#include "data/memory_dataset.h"

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kImagesMagic = 0x0803; // bytes, 3 dimensions
constexpr uint32_t kLabelsMagic = 0x0801; // bytes, 1 dimension
constexpr uint32_t kMaxSide = 65535;
constexpr uint64_t kMaxRatio = 1032; // of deflate: no file unpacks to more
constexpr const char* kGetIt =
    "; the file is damaged or incomplete: get it again (Fashion-MNIST: apt-get "
    "install --reinstall dataset-fashion-mnist)";

// An IDX file, plain or compressed; zlib sees which.
class IdxFile {
 public:
  explicit IdxFile(std::string path) : path_(std::move(path)) {
    std::error_code error;
    disk_size_ = fs::file_size(path_, error);
    AMPKIT_CHECK_DATA(
        !error, "open_idx: cannot read ", path_, ": ", error.message());
    file_.reset(gzopen(path_.c_str(), "rbe"));
    AMPKIT_CHECK_DATA(
        file_ != nullptr,
        "open_idx: cannot open ",
        path_,
        ": ",
        std::generic_category().message(errno));
    gzbuffer(file_.get(), 1U << 17U);
  }

  const std::string& path() const { return path_; }

  // Reads the magic number and so many sizes.
  template <size_t count>
  std::array<uint32_t, count> read_header(uint32_t magic) {
    const uint32_t found = read_number("magic number");
    AMPKIT_CHECK_DATA(
        found == magic,
        "open_idx: ",
        path_,
        " begins with magic number ",
        found,
        ", expected ",
        magic,
        magic == kImagesMagic ? " (images)" : " (labels)",
        kGetIt);
    std::array<uint32_t, count> sizes{};
    for (uint32_t& size : sizes) {
      size = read_number("size");
      AMPKIT_CHECK_DATA(
          size > 0,
          "open_idx: a size in the header of ",
          path_,
          " (bytes 4 to ",
          4 * count + 3,
          ") is 0, expected at least 1",
          kGetIt);
    }
    return sizes;
  }

  // Checks that the file can hold so much, before memory is asked for.
  void check_plausible(uint64_t expected) const {
    AMPKIT_CHECK_DATA(
        expected / kMaxRatio <= disk_size_,
        "open_idx: the header of ",
        path_,
        " promises ",
        expected,
        " bytes, more than a file of ",
        disk_size_,
        " bytes can hold",
        kGetIt);
  }

  // Reads exactly `target`, which must be all that is left.
  void read_rest(std::span<uint8_t> target) {
    read("content", target);
    // Past the end, so that zlib verifies its checksum.
    uint8_t more = 0;
    const int got = gzread(file_.get(), &more, 1);
    check_stream(got);
    AMPKIT_CHECK_DATA(
        got == 0,
        "open_idx: ",
        path_,
        " goes on after byte ",
        position_,
        ", where its header says that it ends",
        kGetIt);
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };

  uint32_t read_number(const char* what) {
    std::array<uint8_t, 4> bytes{};
    read(what, bytes);
    return uint32_t{bytes[0]} << 24U | uint32_t{bytes[1]} << 16U |
           uint32_t{bytes[2]} << 8U | uint32_t{bytes[3]};
  }

  void read(const char* what, std::span<uint8_t> target) {
    constexpr size_t kPiece = size_t{1} << 30U; // gzread counts in int
    const uint64_t end = position_ + target.size();
    while (!target.empty()) {
      const auto wanted =
          static_cast<unsigned>(std::min(target.size(), kPiece));
      const int got = gzread(file_.get(), target.data(), wanted);
      check_stream(got);
      AMPKIT_CHECK_DATA(
          got > 0,
          "open_idx: ",
          path_,
          " ends at byte ",
          position_,
          " in its ",
          what,
          ", expected ",
          end,
          " bytes (unpacked)",
          kGetIt);
      position_ += static_cast<uint64_t>(got);
      target = target.subspan(static_cast<size_t>(got));
    }
  }

  // A truncated file shows only here: gzread() returns what there was.
  void check_stream(int got) const {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    AMPKIT_CHECK_DATA(
        got >= 0 && (code == Z_OK || code == Z_STREAM_END),
        "open_idx: ",
        path_,
        " cannot be unpacked beyond byte ",
        position_,
        ": ",
        code == Z_ERRNO ? std::generic_category().message(errno) : text,
        kGetIt);
  }

  std::string path_;
  uint64_t disk_size_ = 0;
  uint64_t position_ = 0; // in the unpacked content
  std::unique_ptr<gzFile_s, Close> file_;
};

std::string find_file(const std::string& dir, const std::string& name) {
  std::string path = dir + "/" + name;
  if (fs::exists(path)) {
    return path;
  }
  AMPKIT_CHECK_DATA(
      fs::exists(path + ".gz"),
      "open_idx: neither ",
      name,
      " nor ",
      name,
      ".gz is in ",
      dir,
      "; for Fashion-MNIST: apt-get install dataset-fashion-mnist, which puts "
      "its files into /usr/share/datasets/fashion-mnist");
  return path + ".gz";
}

void read_images(IdxFile& file, detail::MemoryDataset::Content& content) {
  const auto [count, height, width] = file.read_header<3>(kImagesMagic);
  AMPKIT_CHECK_DATA(
      height <= kMaxSide && width <= kMaxSide,
      "open_idx: the header of ",
      file.path(),
      " says that images have ",
      width,
      " x ",
      height,
      " pixels, expected at most ",
      kMaxSide,
      " each way",
      kGetIt);
  // At most 2^64: no overflow.
  const uint64_t bytes = uint64_t{count} * (uint64_t{height} * width);
  file.check_plausible(bytes);
  content.shape = {1, height, width};
  content.pixels = std::make_unique_for_overwrite<uint8_t[]>(bytes);
  file.read_rest({content.pixels.get(), bytes});
  content.labels.resize(count);
}

void read_labels(
    IdxFile& file,
    const std::string& images,
    int64_t num_classes,
    std::vector<uint8_t>& labels) {
  const auto [count] = file.read_header<1>(kLabelsMagic);
  AMPKIT_CHECK_DATA(
      count == labels.size(),
      "open_idx: ",
      file.path(),
      " has ",
      count,
      " labels and ",
      images,
      " has ",
      labels.size(),
      " images, expected as many; take both from the same place");
  file.read_rest(labels);
  for (size_t record = 0; record < labels.size(); ++record) {
    AMPKIT_CHECK_DATA(
        labels[record] < num_classes,
        "open_idx: label ",
        int{labels[record]},
        " of record ",
        record,
        " (byte ",
        record + 8,
        ") of ",
        file.path(),
        " is out of range, expected 0 to ",
        num_classes - 1,
        "; give num_classes if there are more, else the file is damaged");
  }
}

} // namespace

std::shared_ptr<const ImageDataset> open_idx(
    const std::string& dir, Split split, int64_t num_classes) {
  constexpr int64_t kMaxClasses = std::numeric_limits<uint8_t>::max() + 1;
  TORCH_CHECK_VALUE(
      num_classes >= 1 && num_classes <= kMaxClasses,
      "open_idx: num_classes must be in [1, ",
      kMaxClasses,
      "], got ",
      num_classes);
  const std::string prefix = split == Split::train ? "train" : "t10k";
  IdxFile images(find_file(dir, prefix + "-images-idx3-ubyte"));
  IdxFile labels(find_file(dir, prefix + "-labels-idx1-ubyte"));
  detail::MemoryDataset::Content content;
  read_images(images, content);
  read_labels(labels, images.path(), num_classes, content.labels);
  for (int64_t name = 0; name < num_classes; ++name) {
    content.class_names.push_back(std::to_string(name));
  }
  return std::make_shared<detail::MemoryDataset>(std::move(content));
}

} // namespace ampkit::zoo
