#pragma once

#include <deque>
#include <string>
#include <vector>

#include <ampkit/dist/launch.h>

#include "dist/file_descriptor.h"

namespace ampkit::dist {

/// The end of what a rank printed, on both streams.
class LastLines {
 public:
  void add(const std::string& line);
  std::vector<std::string> lines() const;

 private:
  std::deque<std::string> lines_;
};

/// One of the two streams of a rank: takes its bytes apart into lines, and
/// keeps them in a file.
class RankStream {
 public:
  /// `path` may be empty: no file. `last` must outlive this.
  RankStream(
      RankLine line,
      const std::string& path,
      const LaunchOptions& options,
      LastLines& last);

  /// Where the rank shall write; close_write() once it has been started.
  int write_end() const { return pipe_.write.number(); }
  void close_write() { pipe_.write.close(); }

  /// To wait at for more; -1 at the end.
  int read_end() const { return pipe_.read.number(); }

  /// Takes what is there, without waiting.
  void read_some();

  /// The last line may have had no end.
  void finish();

 private:
  void take(const char* bytes, size_t count);
  void end_line();

  Pipe pipe_;
  FileDescriptor file_;
  RankLine line_;
  const LaunchOptions& options_;
  LastLines& last_;
};

} // namespace ampkit::dist
