#include "dist/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

constexpr size_t kKeptLines = 20;
// A longer one is cut: a rank that never ends its line must not fill memory.
constexpr size_t kLongestLine = 1 << 16;

FileDescriptor open_log(const std::string& path) {
  if (path.empty()) {
    return {};
  }
  FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  TORCH_CHECK(
      file.is_open(),
      "dist::launch: cannot write ",
      path,
      ": ",
      std::strerror(errno));
  return file;
}

void write_all(int file, const char* bytes, size_t count) {
  while (count > 0) {
    const auto written = ::write(file, bytes, count);
    TORCH_CHECK(
        written >= 0 || errno == EINTR,
        "dist::launch: cannot write a log file: ",
        std::strerror(errno));
    const auto done = static_cast<size_t>(std::max<ssize_t>(written, 0));
    bytes += done;
    count -= done;
  }
}

} // namespace

void LastLines::add(const std::string& line) {
  lines_.push_back(line);
  if (lines_.size() > kKeptLines) {
    lines_.pop_front();
  }
}

std::vector<std::string> LastLines::lines() const {
  return {lines_.begin(), lines_.end()};
}

RankStream::RankStream(
    RankLine line,
    const std::string& path,
    const LaunchOptions& options,
    LastLines& last)
    : file_(open_log(path)),
      line_(std::move(line)),
      options_(options),
      last_(last) {
  ::fcntl(pipe_.read.number(), F_SETFL, O_NONBLOCK);
}

void RankStream::read_some() {
  // Not until it is empty: a rank that prints without end would have all the
  // attention.
  char bytes[1 << 14];
  const auto count = pipe_.read.is_open()
                         ? ::read(pipe_.read.number(), bytes, sizeof(bytes))
                         : 0;
  if (count > 0) {
    take(bytes, static_cast<size_t>(count));
  } else if (count == 0) {
    pipe_.read.close();
  }
}

void RankStream::finish() {
  // What processes of a rank that has ended still write is not waited for.
  char bytes[1 << 14];
  for (ssize_t count = 1; pipe_.read.is_open() && count > 0;) {
    count = ::read(pipe_.read.number(), bytes, sizeof(bytes));
    take(bytes, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  pipe_.read.close();
  if (!line_.text.empty()) {
    end_line();
  }
}

void RankStream::take(const char* bytes, size_t count) {
  if (file_.is_open()) {
    write_all(file_.number(), bytes, count);
  }
  for (size_t i = 0; i < count; ++i) {
    // Progress bars end their lines by '\r'.
    const bool ends = bytes[i] == '\n' || bytes[i] == '\r';
    if (!ends) {
      line_.text += bytes[i];
    }
    if (bytes[i] == '\n' || (ends && !line_.text.empty()) ||
        line_.text.size() >= kLongestLine) {
      end_line();
    }
  }
}

void RankStream::end_line() {
  last_.add(line_.text);
  if (options_.on_line) {
    options_.on_line(line_);
  }
  line_.text.clear();
}

} // namespace ampkit::dist
