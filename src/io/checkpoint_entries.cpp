#include "io/checkpoint_entries.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include <ampkit/error.h>

#include "io/checksum.h"

namespace ampkit::io {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kNanPrefix = "NaN:";

json real_value(double value) {
  if (std::isnan(value)) {
    return std::string(kNanPrefix) +
           checksum_text(std::bit_cast<uint64_t>(value));
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

double parse_real(const json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  const auto text = value.get<std::string>();
  if (text == "Infinity") {
    return kInfinity;
  }
  if (text == "-Infinity") {
    return -kInfinity;
  }
  uint64_t bits = 0;
  const char* end = text.data() + text.size();
  const bool is_nan =
      text.starts_with(kNanPrefix) &&
      std::from_chars(text.data() + kNanPrefix.size(), end, bits, 16).ptr ==
          end;
  // Caught by read_entries() with the exceptions of the parser.
  if (!is_nan) {
    throw std::invalid_argument("'" + text + "' is not a number");
  }
  return std::bit_cast<double>(bits);
}

json entry_of(const std::string& name, const StateValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return {name, "integer", *integer};
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return {name, "real", real_value(*real)};
  }
  if (const auto* boolean = std::get_if<bool>(&value)) {
    return {name, "boolean", *boolean};
  }
  return {name, "text", std::get<std::string>(value)};
}

CheckpointEntry parse_entry(const json& item) {
  CheckpointEntry entry;
  entry.name = item.at(0).get<std::string>();
  const auto kind = item.at(1).get<std::string>();
  const json& value = item.at(2);
  if (kind == "tensor") {
    entry.is_tensor = true;
    entry.checksum = value.get<std::string>();
  } else if (kind == "integer") {
    entry.scalar = value.get<int64_t>();
  } else if (kind == "real") {
    entry.scalar = parse_real(value);
  } else if (kind == "boolean") {
    entry.scalar = value.get<bool>();
  } else if (kind == "text") {
    entry.scalar = value.get<std::string>();
  } else {
    throw std::invalid_argument("unknown kind '" + kind + "'");
  }
  return entry;
}

} // namespace

std::string write_entries(
    const StateDict& state, const std::vector<std::string>& checksums) {
  json list = json::array();
  auto next = checksums.begin();
  for (const auto& [name, value] : state.entries()) {
    if (std::holds_alternative<at::Tensor>(value)) {
      list.push_back({name, "tensor", *next++});
    } else {
      list.push_back(entry_of(name, value));
    }
  }
  try {
    return list.dump();
  } catch (const json::exception& error) {
    TORCH_CHECK_VALUE(
        false,
        "save_checkpoint: names and texts should be UTF-8: ",
        error.what());
  }
}

std::vector<CheckpointEntry> read_entries(
    const std::string& path, const std::string& text) {
  std::vector<CheckpointEntry> entries;
  try {
    for (const json& item : json::parse(text)) {
      entries.push_back(parse_entry(item));
    }
  } catch (const std::exception& error) {
    AMPKIT_CHECK_CHECKPOINT(
        false,
        "load_checkpoint: the header of ",
        path,
        " lists its entries wrongly, at entry ",
        entries.size(),
        ": ",
        error.what());
  }
  return entries;
}

} // namespace ampkit::io
