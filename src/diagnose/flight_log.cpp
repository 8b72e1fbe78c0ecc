// Reading what a FlightRecorder left.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include <ampkit/diagnose/flight_recorder.h>
#include <ampkit/error.h>

#include "diagnose/flight_format.h"
#include "io/append_file.h"

namespace ampkit::diagnose {
namespace {

using FlightBytes = std::span<const std::byte>;

template <class Block>
Block flight_block(FlightBytes bytes, size_t offset) {
  Block block;
  std::memcpy(&block, bytes.data() + offset, kFlightBlock);
  return block;
}

bool sound_at(FlightBytes bytes, size_t offset) {
  return flight_block_is_sound(bytes.subspan(offset).first<kFlightBlock>());
}

bool empty_at(FlightBytes bytes, size_t offset) {
  return std::ranges::all_of(
      bytes.subspan(offset, kFlightBlock),
      [](std::byte value) { return value == std::byte{0}; });
}

FlightHeader checked_header(const std::string& path, FlightBytes bytes) {
  AMPKIT_CHECK_CHECKPOINT(
      bytes.size() >= kFlightMagic.size() &&
          std::memcmp(bytes.data(), kFlightMagic.data(), kFlightMagic.size()) ==
              0,
      "read_flight: ",
      path,
      " does not begin, at byte 0, as the file of a FlightRecorder does");
  AMPKIT_CHECK_CHECKPOINT(
      bytes.size() >= kFlightFirstRecord,
      "read_flight: ",
      path,
      " is cut short: it ends at byte ",
      bytes.size(),
      ", its header alone has ",
      kFlightFirstRecord);
  const auto header = flight_block<FlightHeader>(bytes, 0);
  AMPKIT_CHECK_CHECKPOINT(
      sound_at(bytes, 0),
      "read_flight: ",
      path,
      " is damaged somewhere in bytes 0 to ",
      kFlightBlock,
      ", its header: the checksum does not agree");
  AMPKIT_CHECK_CHECKPOINT(
      header.version == kFlightVersion && header.block_size == kFlightBlock,
      "read_flight: ",
      path,
      " has version ",
      header.version,
      " at byte 8, this version of ampkit reads ",
      kFlightVersion);
  AMPKIT_CHECK_CHECKPOINT(
      header.capacity >= 1 && header.capacity <= kMostFlightRecords &&
          bytes.size() == flight_file_size(header.capacity),
      "read_flight: ",
      path,
      " ends at byte ",
      bytes.size(),
      ", expected ",
      flight_file_size(header.capacity),
      " for its ",
      header.capacity,
      " records");
  return header;
}

// The places take turns, so that at most the older one is torn.
void read_now(FlightBytes bytes, FlightLog& log) {
  uint64_t newest = 0;
  for (size_t i = 1; i <= kFlightNowPlaces; ++i) {
    const auto offset = i * kFlightBlock;
    const auto now = flight_block<FlightRecord>(bytes, offset);
    if (!sound_at(bytes, offset) || now.sequence <= newest) {
      continue;
    }
    newest = now.sequence;
    log.current_step = now.step;
    log.phase_time = now.time;
    const bool ended = (now.flags & FlightRecord::ended) != 0;
    log.phase = ended ? "" : flight_text(now);
    log.ended = ended ? std::optional(flight_text(now)) : std::nullopt;
  }
}

struct PlacedRecord {
  size_t place;
  FlightRecord record;
};

void check_bad_places(
    const std::string& path,
    const std::vector<size_t>& bad,
    uint64_t newest,
    int64_t capacity,
    FlightLog& log) {
  // Only the place that the next record goes to can be half written.
  const auto next = newest % static_cast<uint64_t>(capacity);
  for (const auto place : bad) {
    AMPKIT_CHECK_CHECKPOINT(
        place == next,
        "read_flight: ",
        path,
        " is damaged somewhere in bytes ",
        kFlightFirstRecord + place * kFlightBlock,
        " to ",
        kFlightFirstRecord + (place + 1) * kFlightBlock,
        ", record ",
        place,
        ": the checksum or number does not agree");
    log.torn = true;
  }
}

void read_records(
    const std::string& path,
    FlightBytes bytes,
    int64_t capacity,
    FlightLog& log) {
  std::vector<PlacedRecord> found;
  std::vector<size_t> bad;
  for (size_t i = 0; i < static_cast<size_t>(capacity); ++i) {
    const auto offset = kFlightFirstRecord + i * kFlightBlock;
    if (empty_at(bytes, offset)) {
      continue;
    }
    const auto record = flight_block<FlightRecord>(bytes, offset);
    const bool here =
        record.sequence > 0 &&
        (record.sequence - 1) % static_cast<uint64_t>(capacity) == i;
    if (sound_at(bytes, offset) && here) {
      found.push_back({i, record});
    } else {
      bad.push_back(i);
    }
  }
  std::ranges::sort(
      found, {}, [](const auto& each) { return each.record.sequence; });
  const auto newest = found.empty() ? 0 : found.back().record.sequence;
  check_bad_places(path, bad, newest, capacity, log);
  log.recorded = static_cast<int64_t>(newest);
  for (const auto& each : found) {
    log.entries.push_back(flight_entry_of(each.record));
  }
}

} // namespace

FlightLog read_flight(const std::string& path) {
  const auto content = io::detail::read_file("read_flight", path);
  const auto bytes = std::as_bytes(std::span(content));
  const auto header = checked_header(path, bytes);
  FlightLog log{
      .rank = header.rank,
      .process = header.process,
      .host = std::string(header.host, strnlen(header.host, 64)),
      .started = header.started};
  read_now(bytes, log);
  read_records(path, bytes, header.capacity, log);
  return log;
}

} // namespace ampkit::diagnose
