#include "io/zip_archive.h"

#include <algorithm>
#include <vector>

#include <ampkit/error.h>

#include "io/crc32.h"
#include "io/mapped_file.h"

// Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
namespace ampkit::io {
namespace {

constexpr uint64_t kEndSize = 22;
constexpr uint64_t kLongestComment = 0xFFFF;
constexpr uint64_t kLargeLocatorSize = 20;
constexpr uint64_t kLargeEndSize = 56;
constexpr uint64_t kEntrySize = 46;
constexpr uint64_t kLocalSize = 30;

constexpr uint64_t kEndMark = 0x06054B50;
constexpr uint64_t kLargeLocatorMark = 0x07064B50;
constexpr uint64_t kLargeEndMark = 0x06064B50;
constexpr uint64_t kEntryMark = 0x02014B50;
constexpr uint64_t kLocalMark = 0x04034B50;

// In place of a number that stands in the extra field, in 64 bits.
constexpr uint64_t kElsewhere = 0xFFFFFFFF;
constexpr uint64_t kLargeSizesTag = 1;

constexpr uint64_t kEncrypted = 1;

constexpr const char* kPickle = "data.pkl";

} // namespace

template <class... Parts>
void ZipArchive::check(bool condition, const Parts&... parts) const {
  AMPKIT_CHECK_CHECKPOINT(condition, who_, ": ", path_, ": ", parts...);
}

std::span<const std::byte> ZipArchive::bytes() const {
  return file_->bytes();
}

uint64_t ZipArchive::number(uint64_t offset, size_t width) const {
  const auto all = bytes();
  check(
      offset <= all.size() && width <= all.size() - offset,
      "truncated: a number should be at byte ",
      offset,
      ", the file has ",
      all.size());
  uint64_t value = 0;
  for (size_t i = 0; i < width; ++i) {
    value |= std::to_integer<uint64_t>(all[offset + i]) << (8 * i);
  }
  return value;
}

uint64_t ZipArchive::find_end() const {
  const uint64_t size = bytes().size();
  const uint64_t last = size < kEndSize ? 0 : size - kEndSize;
  const uint64_t first = last - std::min(last, kLongestComment);
  for (uint64_t at = last; size >= kEndSize; --at) {
    if (number(at, 4) == kEndMark &&
        at + kEndSize + number(at + 20, 2) == size) {
      return at;
    }
    if (at == first) {
      break;
    }
  }
  const bool is_pickle = size > 1 && number(0, 1) == 0x80;
  check(
      false,
      is_pickle ? "a pickle without a zip file around it, as torch.save wrote "
                  "before 1.6; load it and save it again in Python"
                : "truncated, or not a zip file: its end has no directory");
  return 0;
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const uint64_t end = find_end();
  Directory found{
      .offset = number(end + 16, 4),
      .size = number(end + 12, 4),
      .count = number(end + 10, 2)};
  uint64_t limit = end;
  const bool has_locator =
      end >= kLargeLocatorSize &&
      number(end - kLargeLocatorSize, 4) == kLargeLocatorMark;
  if (has_locator) {
    const uint64_t large = number(end - kLargeLocatorSize + 8, 8);
    limit = end - kLargeLocatorSize;
    check(
        limit >= kLargeEndSize && large <= limit - kLargeEndSize &&
            number(large, 4) == kLargeEndMark,
        "the directory should be described at byte ",
        large,
        ", and is not");
    found = {
        .offset = number(large + 48, 8),
        .size = number(large + 40, 8),
        .count = number(large + 32, 8)};
    limit = large;
  }
  check(
      found.offset <= limit && found.size <= limit - found.offset,
      "the directory should have ",
      found.size,
      " bytes from byte ",
      found.offset,
      " on, but ends at byte ",
      limit);
  return found;
}

void ZipArchive::read_large_sizes(
    uint64_t offset, uint64_t end, uint64_t unpacked, Parsed& parsed) const {
  Entry& entry = parsed.entry;
  while (offset + 4 <= end) {
    const uint64_t tag = number(offset, 2);
    const uint64_t last = offset + 4 + number(offset + 2, 2);
    check(
        last <= end,
        "record '",
        parsed.name,
        "' has a wrong extra field at byte ",
        offset);
    offset += 4;
    if (tag == kLargeSizesTag) {
      // Those that are missing, in this order.
      for (uint64_t* value : {&unpacked, &entry.size, &entry.offset}) {
        if (*value == kElsewhere && offset + 8 <= last) {
          *value = number(offset, 8);
          offset += 8;
        }
      }
    }
    offset = last;
  }
}

ZipArchive::Parsed ZipArchive::read_entry(uint64_t offset, uint64_t end) const {
  check(
      end - offset >= kEntrySize && number(offset, 4) == kEntryMark,
      "the directory has no entry at byte ",
      offset,
      " where one should be");
  const uint64_t name_size = number(offset + 28, 2);
  const uint64_t extra_size = number(offset + 30, 2);
  Parsed parsed;
  parsed.size = kEntrySize + name_size + extra_size + number(offset + 32, 2);
  check(
      parsed.size <= end - offset,
      "the entry of the directory at byte ",
      offset,
      " reaches beyond the directory");
  const auto name = bytes().subspan(offset + kEntrySize, name_size);
  parsed.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  const bool encrypted = (number(offset + 8, 2) & kEncrypted) != 0;
  parsed.entry = {
      .offset = number(offset + 42, 4),
      .size = number(offset + 20, 4),
      .crc = static_cast<uint32_t>(number(offset + 16, 4)),
      .stored = number(offset + 10, 2) == 0 && !encrypted};
  const uint64_t extra = offset + kEntrySize + name_size;
  read_large_sizes(extra, extra + extra_size, number(offset + 24, 4), parsed);
  return parsed;
}

void ZipArchive::read_directory() {
  const Directory directory = find_directory();
  const uint64_t end = directory.offset + directory.size;
  std::map<std::string, Entry, std::less<>> all;
  uint64_t offset = directory.offset;
  while (offset < end) {
    Parsed parsed = read_entry(offset, end);
    offset += parsed.size;
    const auto placed = all.emplace(parsed.name, parsed.entry);
    check(placed.second, "record '", parsed.name, "' is there twice");
    const auto slash = parsed.name.find('/');
    if (slash != std::string::npos &&
        parsed.name.substr(slash + 1) == kPickle) {
      folder_ = parsed.name.substr(0, slash + 1);
    }
  }
  check(
      all.size() == directory.count,
      "the directory lists ",
      all.size(),
      " records and should list ",
      directory.count);
  check(
      !folder_.empty(),
      "a zip file without the record '",
      kPickle,
      "' of torch.save");
  for (const auto& [name, entry] : all) {
    if (name.starts_with(folder_)) {
      entries_.emplace(name.substr(folder_.size()), entry);
    }
  }
}

void ZipArchive::check_extents() const {
  // Records that share bytes would let a small file ask for much memory.
  std::vector<std::pair<uint64_t, uint64_t>> extents;
  for (const auto& [name, entry] : entries_) {
    const uint64_t data = data_offset(name, entry);
    extents.emplace_back(entry.offset, data + entry.size);
  }
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i) {
    check(
        extents[i - 1].second <= extents[i].first,
        "two records overlap at byte ",
        extents[i].first);
  }
}

uint64_t ZipArchive::data_offset(
    const std::string& name, const Entry& entry) const {
  const uint64_t size = bytes().size();
  check(
      entry.offset <= size && size - entry.offset >= kLocalSize &&
          number(entry.offset, 4) == kLocalMark,
      "record '",
      name,
      "' should begin at byte ",
      entry.offset,
      ", and does not");
  const uint64_t offset = entry.offset + kLocalSize +
                          number(entry.offset + 26, 2) +
                          number(entry.offset + 28, 2);
  check(
      offset <= size && entry.size <= size - offset,
      "truncated: record '",
      name,
      "' should have ",
      entry.size,
      " bytes from byte ",
      offset,
      " on, the file has ",
      size);
  return offset;
}

ZipArchive::ZipArchive(const char* who, std::string path)
    : who_(who),
      path_(std::move(path)),
      file_(std::make_shared<const detail::MappedFile>(who, path_)) {
  read_directory();
  check_extents();
}

bool ZipArchive::contains(std::string_view name) const {
  return entries_.contains(name);
}

std::span<const std::byte> ZipArchive::record(
    std::string_view name, bool verify) const {
  const auto place = entries_.find(name);
  check(
      place != entries_.end(),
      "no record '",
      name,
      "' among ",
      entries_.size());
  const Entry& entry = place->second;
  check(
      entry.stored,
      "record '",
      name,
      "' is compressed or encrypted; torch.save stores as it is");
  const uint64_t offset = data_offset(place->first, entry);
  const auto found = bytes().subspan(offset, entry.size);
  check(
      !verify || crc32(found) == entry.crc,
      "damaged: record '",
      name,
      "', bytes ",
      offset,
      " to ",
      offset + entry.size,
      ", does not have its checksum");
  return found;
}

} // namespace ampkit::io
