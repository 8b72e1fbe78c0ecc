#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <ampkit/export.h>

namespace ampkit::io {

namespace detail {
class AppendFile;
} // namespace detail

/// Settings of an EventFileWriter.
struct EventFileOptions {
  /// For a run that goes on from an earlier point: TensorBoard then hides what
  /// older files of the directory say of this step and those after it.
  std::optional<int64_t> purge_step;
};

/// Writes scalars and texts for TensorBoard, into a new file of a directory:
/// "events.out.tfevents.<seconds>.<host>.<process>.<number>".
///
///     io::EventFileWriter events("run/tensorboard");
///     events.add_scalar("train/loss", loss, step);
///
/// Each call appends one record with one write(): nothing waits in a buffer, so
/// that a process killed at any moment loses at most the record it was writing,
/// which TensorBoard recognises by its checksum. flush() syncs to the disk, for
/// the power cut too. Not thread-safe. A failed write throws
/// ampkit::CheckpointError and leaves the file ending in a whole record.
/// Format: TFRecord framing of tensorflow's event.proto.
class AMPKIT_API EventFileWriter {
 public:
  /// Creates `directory` (and its parents) if it is missing.
  explicit EventFileWriter(
      const std::string& directory, const EventFileOptions& options = {});
  ~EventFileWriter();

  /// `value` is stored in single precision, as TensorBoard shows it; infinities
  /// and NaN are kept. Throws c10::ValueError if `tag` is empty.
  void add_scalar(std::string_view tag, double value, int64_t step);

  /// `text` is Markdown. Throws c10::ValueError if `tag` is empty.
  void add_text(std::string_view tag, std::string_view text, int64_t step);

  /// Syncs what was added to the disk.
  void flush();

  const std::string& path() const;

 private:
  void append(std::string_view record);

  std::unique_ptr<detail::AppendFile> file_;
};

} // namespace ampkit::io
