#include <ampkit/io/event_file.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <unistd.h>

#include <protozero/pbf_writer.hpp>

#include <c10/util/Exception.h>

#include <ampkit/error.h>

#include "io/append_file.h"
#include "io/crc32c.h"

namespace ampkit::io {
namespace {

// Field numbers of tensorflow's event.proto, summary.proto and tensor.proto.
enum class Event : protozero::pbf_tag_type {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7,
};
constexpr protozero::pbf_tag_type kSessionStatus = 1;
constexpr int32_t kSessionStart = 1;
constexpr protozero::pbf_tag_type kSummaryValue = 1;
enum class Value : protozero::pbf_tag_type {
  kTag = 1,
  kSimpleValue = 2,
  kTensor = 8,
  kMetadata = 9,
};
constexpr protozero::pbf_tag_type kPluginData = 1;
constexpr protozero::pbf_tag_type kPluginName = 1;
constexpr protozero::pbf_tag_type kTensorDtype = 1;
constexpr int32_t kTensorString = 7; // DT_STRING
constexpr protozero::pbf_tag_type kTensorShape = 2;
constexpr protozero::pbf_tag_type kTensorTexts = 8;

protozero::pbf_tag_type number(Event field) {
  return static_cast<protozero::pbf_tag_type>(field);
}

protozero::pbf_tag_type number(Value field) {
  return static_cast<protozero::pbf_tag_type>(field);
}

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// The format never stores a plain CRC, since it may itself be summed.
std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8U);
}

std::string framed(const std::string& event) {
  const std::string length = little_endian<uint64_t>(event.size());
  return length + masked_crc(length) + event + masked_crc(event);
}

// An event with its time, to which the caller adds one kind of content.
protozero::pbf_writer begin_event(std::string& event) {
  protozero::pbf_writer writer(event);
  writer.add_double(number(Event::kWallTime), seconds_since_1970());
  return writer;
}

std::string summary_event(int64_t step, const std::string& value) {
  std::string event;
  auto writer = begin_event(event);
  writer.add_int64(number(Event::kStep), step);
  protozero::pbf_writer summary(writer, number(Event::kSummary));
  summary.add_message(kSummaryValue, value);
  summary.commit();
  return event;
}

std::string text_tensor(std::string_view text) {
  std::string tensor;
  protozero::pbf_writer writer(tensor);
  writer.add_enum(kTensorDtype, kTensorString);
  writer.add_message(kTensorShape, std::string()); // 0-d
  writer.add_bytes(kTensorTexts, text.data(), text.size());
  return tensor;
}

std::string text_metadata() {
  std::string plugin;
  protozero::pbf_writer(plugin).add_string(kPluginName, "text");
  std::string metadata;
  protozero::pbf_writer(metadata).add_message(kPluginData, plugin);
  return metadata;
}

void check_tag(const char* function, std::string_view tag) {
  TORCH_CHECK_VALUE(
      !tag.empty(), "EventFileWriter::", function, ": the tag is empty");
}

std::string new_path(const std::string& directory) {
  static std::atomic<int> counter{0};
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string name = c10::str(
      "events.out.tfevents.",
      static_cast<int64_t>(seconds_since_1970()),
      ".",
      host.data(),
      ".",
      getpid(),
      ".",
      counter++);
  return (std::filesystem::path(directory) / name).string();
}

} // namespace

EventFileWriter::EventFileWriter(
    const std::string& directory, const EventFileOptions& options) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  AMPKIT_CHECK_CHECKPOINT(
      !code,
      "EventFileWriter: cannot create ",
      directory,
      ": ",
      code.message());
  file_ = std::make_unique<detail::AppendFile>(
      new_path(directory), detail::AppendFile::Open::kNew);
  std::string version;
  begin_event(version).add_string(number(Event::kFileVersion), "brain.Event:2");
  append(version);
  if (options.purge_step) {
    std::string session;
    protozero::pbf_writer(session).add_enum(kSessionStatus, kSessionStart);
    std::string event;
    auto writer = begin_event(event);
    writer.add_int64(number(Event::kStep), *options.purge_step);
    writer.add_message(number(Event::kSessionLog), session);
    append(event);
  }
}

EventFileWriter::~EventFileWriter() = default;

void EventFileWriter::add_scalar(
    std::string_view tag, double value, int64_t step) {
  check_tag("add_scalar", tag);
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_string(number(Value::kTag), tag.data(), tag.size());
  writer.add_float(number(Value::kSimpleValue), static_cast<float>(value));
  append(summary_event(step, message));
}

void EventFileWriter::add_text(
    std::string_view tag, std::string_view text, int64_t step) {
  check_tag("add_text", tag);
  std::string message;
  protozero::pbf_writer writer(message);
  writer.add_string(number(Value::kTag), tag.data(), tag.size());
  writer.add_message(number(Value::kTensor), text_tensor(text));
  writer.add_message(number(Value::kMetadata), text_metadata());
  append(summary_event(step, message));
}

void EventFileWriter::append(std::string_view record) {
  file_->append(framed(std::string(record)));
}

void EventFileWriter::flush() {
  file_->sync();
}

const std::string& EventFileWriter::path() const {
  return file_->path();
}

} // namespace ampkit::io
