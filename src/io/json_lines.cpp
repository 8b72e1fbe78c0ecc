#include <ampkit/io/json_lines.h>

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include <c10/util/Exception.h>

#include <ampkit/error.h>

#include "io/append_file.h"
#include "io/atomic_file.h"

namespace ampkit::io {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

ordered_json to_json(const std::string& name, const StateValue& value) {
  TORCH_CHECK_VALUE(
      !std::holds_alternative<at::Tensor>(value),
      "JsonLinesWriter::append: '",
      name,
      "' should be a number, a boolean or a text, got ",
      describe(value));
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return *integer;
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return to_json(*real);
  }
  if (const auto* boolean = std::get_if<bool>(&value)) {
    return *boolean;
  }
  return std::get<std::string>(value);
}

std::string line_of(const StateDict& row) {
  TORCH_CHECK_VALUE(!row.empty(), "JsonLinesWriter::append: the row is empty");
  ordered_json object;
  for (const auto& [name, value] : row.entries()) {
    object[name] = to_json(name, value);
  }
  try {
    return object.dump() + "\n";
  } catch (const ordered_json::exception& error) {
    TORCH_CHECK_VALUE(
        false,
        "JsonLinesWriter::append: names and texts should be UTF-8: ",
        error.what());
  }
}

StateValue from_text(const std::string& text) {
  if (text == "NaN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (text == "Infinity" || text == "-Infinity") {
    const double infinity = std::numeric_limits<double>::infinity();
    return text == "Infinity" ? infinity : -infinity;
  }
  return text;
}

// Throws an exception of the JSON library for what a row cannot have.
StateValue from_json(const ordered_json& value) {
  if (value.is_boolean()) {
    return value.get<bool>();
  }
  // An integer beyond 64 bits comes as unsigned and reads as a real number.
  if (value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX)) {
    return value.get<int64_t>();
  }
  if (value.is_number()) {
    return value.get<double>();
  }
  return from_text(value.get<std::string>());
}

StateDict parse_row(
    const std::string& path, size_t line, std::string_view text) {
  StateDict row;
  try {
    const ordered_json object = ordered_json::parse(text);
    for (const auto& item : object.get_ref<const ordered_json::object_t&>()) {
      row.set(item.first, from_json(item.second));
    }
  } catch (const std::exception& error) {
    AMPKIT_CHECK_CHECKPOINT(
        false,
        "read_json_lines: line ",
        line,
        " of ",
        path,
        " is not an object of numbers, booleans and texts: ",
        error.what());
  }
  return row;
}

// The whole lines of a file, each with its newline.
std::vector<std::string_view> whole_lines(std::string_view content) {
  std::vector<std::string_view> lines;
  size_t end = 0;
  while ((end = content.find('\n')) != std::string_view::npos) {
    lines.push_back(content.substr(0, end + 1));
    content.remove_prefix(end + 1);
  }
  return lines;
}

std::unique_ptr<detail::AppendFile> open_to_append(const std::string& path) {
  auto file = std::make_unique<detail::AppendFile>(
      path, detail::AppendFile::Open::kExistingOrNew);
  const std::string content = detail::read_file("JsonLinesWriter", path);
  const size_t whole = content.rfind('\n') + 1; // npos + 1 is 0
  if (whole < content.size()) {
    file->truncate(whole);
  }
  return file;
}

} // namespace

JsonLinesWriter::JsonLinesWriter(const std::string& path)
    : file_(open_to_append(path)) {}

JsonLinesWriter::~JsonLinesWriter() = default;

void JsonLinesWriter::append(const StateDict& row) {
  file_->append(line_of(row));
}

void JsonLinesWriter::truncate_after(int64_t step, std::string_view name) {
  const std::string content = detail::read_file("JsonLinesWriter", path());
  std::string kept;
  size_t number = 0;
  for (const auto line : whole_lines(content)) {
    const StateDict row = parse_row(path(), ++number, line);
    if (!row.contains(name) || row.integer(name) <= step) {
      kept += line;
    }
  }
  if (kept.size() == content.size()) {
    return;
  }
  AtomicFile file(path());
  file.write_at(0, kept);
  file.commit();
  file_ = open_to_append(path());
}

void JsonLinesWriter::flush() {
  file_->sync();
}

const std::string& JsonLinesWriter::path() const {
  return file_->path();
}

std::vector<StateDict> read_json_lines(const std::string& path) {
  const std::string content = detail::read_file("read_json_lines", path);
  std::vector<StateDict> rows;
  for (const auto line : whole_lines(content)) {
    rows.push_back(parse_row(path, rows.size() + 1, line));
  }
  return rows;
}

} // namespace ampkit::io
