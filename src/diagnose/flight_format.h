#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <ampkit/diagnose/flight_recorder.h>

namespace ampkit::diagnose {

/// The file of a FlightRecorder: a header, two places for what goes on now,
/// which take turns, and a ring of records; each of 256 bytes, of which the
/// last 8 are the checksum of the others. Numbers as the machine has them.
inline constexpr size_t kFlightBlock = 256;
inline constexpr size_t kFlightNowPlaces = 2;
inline constexpr size_t kFlightFirstRecord =
    (1 + kFlightNowPlaces) * kFlightBlock;
inline constexpr uint32_t kFlightVersion = 1;
inline constexpr std::string_view kFlightMagic = "AMPKFLT\n";
inline constexpr int64_t kMostFlightRecords = 1'000'000;

struct FlightHeader {
  char magic[8];
  uint32_t version;
  uint32_t block_size;
  int64_t capacity;
  int64_t process;
  double started;
  int32_t rank;
  char host[64];
  char reserved[140];
  uint64_t checksum;
};
static_assert(sizeof(FlightHeader) == kFlightBlock);

/// A step that is over, or what goes on now.
struct FlightRecord {
  enum Flag : uint32_t { skipped = 1, fault = 2, ended = 4 };
  uint64_t sequence; ///< from 1
  int64_t step;
  double time;
  double loss;
  double scale;
  double grad_norm;
  double grad_max;
  int64_t bad_values;
  uint32_t flags;
  uint32_t text_size;
  char text[176];
  uint64_t checksum;
};
static_assert(sizeof(FlightRecord) == kFlightBlock);
inline constexpr size_t kFlightText = sizeof(FlightRecord::text) - 1;

inline size_t flight_file_size(int64_t capacity) {
  return kFlightFirstRecord + static_cast<size_t>(capacity) * kFlightBlock;
}

/// Sets, and verifies, the checksum at the end of a block.
void seal_flight_block(std::span<std::byte, kFlightBlock> block);
bool flight_block_is_sound(std::span<const std::byte, kFlightBlock> block);

FlightRecord flight_record_of(const FlightEntry& entry, uint64_t sequence);
FlightEntry flight_entry_of(const FlightRecord& record);
std::string flight_text(const FlightRecord& record);
void set_flight_text(FlightRecord& record, std::string_view text);

/// Seconds since 1970.
double wall_clock();

} // namespace ampkit::diagnose
