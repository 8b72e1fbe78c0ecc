#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::io {

namespace detail {
class AppendFile;
} // namespace detail

/// A log with one JSON object a line, which only grows.
///
///     io::JsonLinesWriter log("run/metrics.jsonl");
///     io::StateDict row;
///     row.set("step", step);
///     row.set("loss", loss);
///     log.append(row);
///
/// Each row is one write(): a process killed at any moment leaves at most a
/// torn last line, which readers skip and the next writer removes. Numbers keep
/// all their digits; JSON knows no infinities and no NaN: they are the texts
/// "Infinity", "-Infinity" and "NaN", and read back as numbers. Not
/// thread-safe. Errors about the file are ampkit::CheckpointError; after a
/// failed write the file ends in a whole line.
class AMPKIT_API JsonLinesWriter {
 public:
  /// Opens `path` to append, creating it if it is missing (its folder must be
  /// there), and removes a torn last line.
  explicit JsonLinesWriter(const std::string& path);
  ~JsonLinesWriter();

  /// Throws c10::ValueError, having written nothing, if `row` is empty, has a
  /// tensor, or a name or text that is not UTF-8.
  void append(const StateDict& row);

  /// Removes the rows whose integer `name` is greater than `step`, so that a
  /// run resumed at `step` does not say them twice; rows without `name` stay.
  /// The file is replaced atomically.
  void truncate_after(int64_t step, std::string_view name = "step");

  /// Syncs what was appended to the disk.
  void flush();

  const std::string& path() const;

 private:
  std::unique_ptr<detail::AppendFile> file_;
};

/// The rows of a file of JsonLinesWriter, without a torn last line (one that no
/// newline ends). Throws ampkit::CheckpointError naming the file and the line
/// if it is unreadable, or if a line is not an object of numbers, booleans and
/// texts.
AMPKIT_API std::vector<StateDict> read_json_lines(const std::string& path);

} // namespace ampkit::io
