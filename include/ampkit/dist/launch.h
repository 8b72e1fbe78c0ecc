#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/export.h>

namespace ampkit::dist {

/// The exit status by which a rank says that it ended because another one did:
/// launch() looks for that other one before it blames a rank.
inline constexpr int kLostPeerStatus = 4;

/// What is done with the lines that a rank prints.
struct RankLine {
  int rank = 0;
  bool to_stderr = false;
  std::string text; // without its end
};

/// Settings of launch().
struct AMPKIT_API LaunchOptions {
  /// Ranks on this machine; in [1, 1024].
  int nproc_per_node = 1;
  /// Machines, on each of which launch() is called, and which one this is.
  int nnodes = 1;
  int node_rank = 0;
  /// Where rank 0 keeps the store. Empty: 127.0.0.1; with several machines it
  /// must be given, the address of the first.
  std::string master_addr;
  /// 0: a free one; with several machines 29500.
  int master_port = 0;
  /// How often all ranks are started anew when one fails; >= 0. On one machine.
  int max_restarts = 0;
  /// Each rank's output is kept in <log_dir>/start-<n>/rank-<r>.out and .err.
  /// Empty: nowhere.
  std::string log_dir;
  /// Each rank gets its share of this process' cores, if there are enough.
  bool bind_cores = true;
  /// How long ranks may take to end after SIGTERM once one of them has failed,
  /// before SIGKILL; >= 0.
  std::chrono::milliseconds failure_grace = std::chrono::seconds(5);
  /// The same after a SIGINT or SIGTERM that was passed on to them, which they
  /// may use to save; >= 0.
  std::chrono::milliseconds interrupt_grace = std::chrono::seconds(30);
  /// Gets every line of every rank, in the calling thread. May be empty.
  std::function<void(const RankLine& line)> on_line;
  /// Gets what happens besides, as restarts. May be empty.
  std::function<void(const std::string& text)> on_note;

  /// Throws c10::ValueError, naming the field, if one is out of range or misses
  /// another.
  void check() const;
};

/// The rank that ended first with something else than status 0.
struct AMPKIT_API RankFailure {
  int rank = 0;
  int64_t process = 0;
  /// That of exit(), or 128 + signal.
  int status = 0;
  /// What killed it; 0 if it exited.
  int signal = 0;
  /// The end of what it printed.
  std::vector<std::string> last_lines;

  /// "rank 1 (process 4711) was killed by signal 9 (Killed)"
  std::string describe() const;
};

/// How launch() ended.
struct LaunchResult {
  /// 0, or the status of the failed rank.
  int status = 0;
  /// None if all was well, or after an interruption.
  std::optional<RankFailure> failure;
  /// The SIGINT, SIGTERM or SIGHUP that ended it, or 0.
  int interrupted_by = 0;
  int restarts = 0;
};

/// Runs `command`, a program and its arguments, as nproc_per_node processes
/// with the environment variables that torchrun sets (RANK, LOCAL_RANK,
/// WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the rest) and, unless it is set
/// already, OMP_NUM_THREADS, for as many threads as a rank has cores; waits for
/// them.
///
/// When a rank fails the others get SIGTERM, later SIGKILL. SIGINT, SIGTERM,
/// SIGHUP, SIGUSR1 and SIGUSR2 that this process gets meanwhile are passed on,
/// and SIGTSTP stops the ranks too, except those that this process ignores, as
/// SIGHUP under nohup. Each rank is a process group of its own and
/// gets no input; whatever it started ends with it. If this process dies, of
/// SIGKILL too, the ranks get SIGTERM, and a watching process ends what is left
/// after failure_grace.
///
/// Must not be called in two threads at once. Call it before the process starts
/// threads, or with those signals blocked in them: one that a thread takes is
/// not passed on.
///
/// Throws c10::ValueError if `command` is empty or can't be started, or if an
/// option is wrong; c10::Error if a log file can't be written.
AMPKIT_API LaunchResult
launch(const std::vector<std::string>& command, const LaunchOptions& options);

} // namespace ampkit::dist
