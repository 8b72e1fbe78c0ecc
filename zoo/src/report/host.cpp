#include "report/host.h"

#include <sys/utsname.h>

#include <charconv>
#include <fstream>
#include <iterator>

namespace ampkit::zoo {
namespace {

constexpr std::string_view kSpace = " \t\n";

/// The next word of `text`, which loses it.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  const auto word = text.substr(0, text.find_first_of(kSpace));
  text.remove_prefix(word.size());
  return word;
}

std::optional<int64_t> to_number(std::string_view word) {
  int64_t value = 0;
  const auto* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc{} || stop != end) {
    return std::nullopt;
  }
  return value;
}

/// What stands behind `key`, blanks and a colon, in the first line that begins
/// with `key`.
std::string_view field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(key)) {
      continue;
    }
    line.remove_prefix(key.size());
    const auto colon = line.find_first_not_of(kSpace);
    if (colon == std::string_view::npos || line[colon] != ':') {
      continue;
    }
    line.remove_prefix(colon + 1);
    line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
    return line;
  }
  return {};
}

} // namespace

std::string read_host_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<double> cpu_quota(std::string_view cpu_max) {
  const auto quota = to_number(take_word(cpu_max));
  const auto period = to_number(take_word(cpu_max));
  if (!quota || !period || *quota <= 0 || *period <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<int64_t> memory_limit(std::string_view memory_max) {
  const auto limit = to_number(take_word(memory_max));
  return limit.value_or(0) > 0 ? limit : std::nullopt;
}

int64_t meminfo_bytes(std::string_view meminfo, std::string_view key) {
  auto value = field(meminfo, key);
  constexpr int64_t kBytesPerUnit = 1024; // the file's unit is always kB
  return to_number(take_word(value)).value_or(0) * kBytesPerUnit;
}

std::string processor_name(std::string_view cpuinfo) {
  return std::string(field(cpuinfo, "model name"));
}

std::string system_name() {
  utsname name{};
  if (uname(&name) != 0) {
    return "";
  }
  return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

} // namespace ampkit::zoo
