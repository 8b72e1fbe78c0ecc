#include <ampkit/diagnose/flight_recorder.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ampkit/error.h>
#include <c10/util/Exception.h>

#include "diagnose/flight_format.h"
#include "io/file_error.h"

namespace ampkit::diagnose {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFlightWho = "FlightRecorder";

int flight_rank(int given) {
  const char* text = std::getenv("RANK");
  if (given >= 0 || text == nullptr) {
    return given >= 0 ? given : 0;
  }
  int rank = 0;
  const auto* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, rank);
  return parsed.ec == std::errc() && parsed.ptr == end && rank >= 0 ? rank : 0;
}

void keep_previous(const std::string& path) {
  std::error_code code;
  if (fs::exists(fs::symlink_status(path, code))) {
    fs::rename(path, path + ".previous", code);
    AMPKIT_CHECK_CHECKPOINT(
        !code, kFlightWho, ": cannot rename ", path, ": ", code.message());
  }
}

// A folder that `ampkit run` looks into. Best effort: training does not depend
// on it.
void leave_link(const std::string& path, int rank) {
  const char* folder = std::getenv("AMPKIT_FLIGHT_DIR");
  if (folder == nullptr || *folder == '\0') {
    return;
  }
  const auto link = flight_link(folder, rank);
  std::error_code code;
  fs::remove(link, code);
  fs::create_symlink(fs::absolute(path, code), link, code);
}

std::span<std::byte> map_new_file(const std::string& path, size_t size) {
  const int file =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) {
    io::throw_file_error(kFlightWho, "create", path);
  }
  // Reserved now: a full disk is an error here and not a SIGBUS later.
  errno = ::posix_fallocate(file, 0, static_cast<off_t>(size));
  void* start = MAP_FAILED;
  if (errno == 0) {
    start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int code = errno;
  ::close(file);
  if (start == MAP_FAILED) {
    ::unlink(path.c_str());
    errno = code;
    io::throw_file_error(kFlightWho, "reserve and map", path);
  }
  return {static_cast<std::byte*>(start), size};
}

} // namespace

struct FlightRecorder::Impl {
  Impl(std::string p, const FlightRecorderOptions& options)
      : path(std::move(p)), capacity(static_cast<uint64_t>(options.capacity)) {
    keep_previous(path);
    bytes = map_new_file(path, flight_file_size(options.capacity));
    FlightHeader header{};
    std::memcpy(header.magic, kFlightMagic.data(), kFlightMagic.size());
    header.version = kFlightVersion;
    header.block_size = kFlightBlock;
    header.capacity = options.capacity;
    header.process = ::getpid();
    header.started = wall_clock();
    header.rank = flight_rank(options.rank);
    ::gethostname(header.host, sizeof(header.host) - 1);
    put(0, header);
    leave_link(path, header.rank);
  }
  ~Impl() { ::munmap(bytes.data(), bytes.size()); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  template <class Block>
  void put(size_t offset, const Block& block) {
    auto sealed = std::bit_cast<std::array<std::byte, kFlightBlock>>(block);
    seal_flight_block(sealed);
    std::memcpy(bytes.data() + offset, sealed.data(), sealed.size());
  }

  void say_now(std::string_view text, uint32_t flags) {
    FlightRecord record{};
    record.sequence = ++nows;
    record.step = step;
    record.time = wall_clock();
    record.flags = flags;
    set_flight_text(record, text);
    put(kFlightBlock * (1 + nows % kFlightNowPlaces), record);
  }

  std::string path;
  uint64_t capacity;
  std::span<std::byte> bytes;
  uint64_t records = 0;
  uint64_t nows = 0;
  int64_t step = -1;
};

FlightRecorder::FlightRecorder(
    const std::string& path, const FlightRecorderOptions& options) {
  TORCH_CHECK_VALUE(
      options.capacity >= 1 && options.capacity <= kMostFlightRecords,
      "FlightRecorder: capacity must be in [1, ",
      kMostFlightRecords,
      "], got ",
      options.capacity);
  impl_ = std::make_unique<Impl>(path, options);
}

FlightRecorder::~FlightRecorder() = default;

void FlightRecorder::begin(int64_t step, std::string_view phase) {
  impl_->step = step;
  impl_->say_now(phase, 0);
}

void FlightRecorder::record(const FlightEntry& entry) {
  auto record = flight_record_of(entry, impl_->records + 1);
  record.time = wall_clock();
  const auto place = impl_->records % impl_->capacity;
  impl_->put(kFlightFirstRecord + place * kFlightBlock, record);
  ++impl_->records;
}

void FlightRecorder::end(std::string_view how) {
  impl_->say_now(how, FlightRecord::ended);
}

const std::string& FlightRecorder::path() const {
  return impl_->path;
}

std::string flight_link(const std::string& folder, int rank) {
  return (fs::path(folder) / ("rank-" + std::to_string(rank) + ".flight"))
      .string();
}

} // namespace ampkit::diagnose
