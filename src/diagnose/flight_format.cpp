#include "diagnose/flight_format.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "io/checksum.h"

namespace ampkit::diagnose {
namespace {

constexpr size_t kSealed = kFlightBlock - sizeof(uint64_t);

} // namespace

void seal_flight_block(std::span<std::byte, kFlightBlock> block) {
  const uint64_t value = io::checksum(block.first(kSealed));
  std::memcpy(block.data() + kSealed, &value, sizeof(value));
}

bool flight_block_is_sound(std::span<const std::byte, kFlightBlock> block) {
  uint64_t found = 0;
  std::memcpy(&found, block.data() + kSealed, sizeof(found));
  return found == io::checksum(block.first(kSealed));
}

FlightRecord flight_record_of(const FlightEntry& entry, uint64_t sequence) {
  FlightRecord record{};
  record.sequence = sequence;
  record.step = entry.step;
  record.time = entry.time;
  record.loss = entry.loss;
  record.scale = entry.scale;
  record.grad_norm = entry.grad_norm;
  record.grad_max = entry.grad_max;
  record.bad_values = entry.bad_values;
  record.flags = (entry.skipped ? FlightRecord::skipped : 0U) |
                 (entry.fault ? FlightRecord::fault : 0U);
  set_flight_text(record, entry.verdict);
  return record;
}

FlightEntry flight_entry_of(const FlightRecord& record) {
  return {
      .step = record.step,
      .loss = record.loss,
      .scale = record.scale,
      .grad_norm = record.grad_norm,
      .grad_max = record.grad_max,
      .bad_values = record.bad_values,
      .skipped = (record.flags & FlightRecord::skipped) != 0,
      .fault = (record.flags & FlightRecord::fault) != 0,
      .verdict = flight_text(record),
      .time = record.time};
}

std::string flight_text(const FlightRecord& record) {
  return {record.text, std::min<size_t>(record.text_size, kFlightText)};
}

void set_flight_text(FlightRecord& record, std::string_view text) {
  auto size = std::min(text.size(), kFlightText);
  // Not within a character of UTF-8.
  while (size < text.size() && size > 0 &&
         (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) {
    --size;
  }
  record.text_size = static_cast<uint32_t>(size);
  std::memcpy(record.text, text.data(), size);
}

double wall_clock() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

} // namespace ampkit::diagnose
