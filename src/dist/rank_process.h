#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "dist/core_binding.h"
#include "dist/rank_output.h"

namespace ampkit::dist {

/// What a rank is started with.
struct RankStart {
  std::vector<std::string> command;
  std::vector<std::string> environment; // "NAME=value", all of it
  CoreShare cores;
};

/// How a process ended.
struct RankEnd {
  int status = 0; // of exit(), or 128 + signal
  int signal = 0;
};

/// One rank of a launch(), a process group of its own.
class RankProcess {
 public:
  RankProcess(int rank, const std::string& log, const LaunchOptions& options);

  /// Throws c10::ValueError if the program can't be started.
  void start(const RankStart& start);

  int rank() const { return rank_; }
  pid_t process() const { return process_; }

  /// Readable when it has ended; -1 if the system has no such thing.
  int end_file() const { return end_.number(); }

  /// Whether it was started and try_reap() has not told its end.
  bool runs() const { return process_ > 0 && !ended_; }

  /// Its end, if it just ended; also ends what it leaves behind.
  std::optional<RankEnd> try_reap();

  /// Waits for the end.
  RankEnd reap();

  /// To its whole group.
  void send(int signal) const;

  std::vector<RankStream*> streams() { return {&out_, &err_}; }
  std::vector<std::string> last_lines() const { return last_.lines(); }

 private:
  std::optional<RankEnd> wait_for_end(int flags);

  int rank_;
  LastLines last_;
  RankStream out_;
  RankStream err_;
  pid_t process_ = -1;
  FileDescriptor end_;
  bool ended_ = false;
};

} // namespace ampkit::dist
