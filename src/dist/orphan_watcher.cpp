#include "dist/orphan_watcher.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

// What follows runs in a fork of a process that may have threads: only calls
// that are safe in a signal handler.

constexpr pid_t kNobody = 0;

bool replace(pid_t* groups, pid_t old_one, pid_t new_one) {
  for (int i = 0; i < OrphanWatcher::kMaxGroups; ++i) {
    if (groups[i] == old_one) {
      groups[i] = new_one;
      return true;
    }
  }
  return false;
}

bool any_lives(const pid_t* groups) {
  for (int i = 0; i < OrphanWatcher::kMaxGroups; ++i) {
    if (groups[i] != kNobody && ::kill(-groups[i], 0) == 0) {
      return true;
    }
  }
  return false;
}

void end_groups(const pid_t* groups, int64_t grace_ms) {
  constexpr int64_t kPauseMs = 20;
  const timespec pause{.tv_sec = 0, .tv_nsec = kPauseMs * 1000000};
  for (int64_t waited = 0; waited < grace_ms && any_lives(groups);
       waited += kPauseMs) {
    ::nanosleep(&pause, nullptr);
  }
  for (int i = 0; i < OrphanWatcher::kMaxGroups; ++i) {
    if (groups[i] != kNobody) {
      ::kill(-groups[i], SIGKILL);
    }
  }
}

// Reads groups to watch, and to forget (negative), until the other end closes.
void follow(int line, int64_t grace_ms) {
  static pid_t groups[OrphanWatcher::kMaxGroups] = {};
  pid_t group = 0;
  for (;;) {
    const auto size = ::read(line, &group, sizeof(group));
    if (size == sizeof(group)) {
      replace(
          groups, group < 0 ? -group : kNobody, group < 0 ? kNobody : group);
    } else if (size >= 0 || errno != EINTR) {
      break;
    }
  }
  end_groups(groups, grace_ms);
}

void leave_session() {
  ::setsid(); // out of reach of the terminal and of kills of the group
  ::prctl(PR_SET_NAME, "ampkit-watcher");
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) {
    ::dup2(nothing, standard);
  }
}

} // namespace

OrphanWatcher::OrphanWatcher(std::chrono::milliseconds grace) {
  Pipe pipe;
  const auto grace_ms = static_cast<int64_t>(grace.count());
  process_ = ::fork();
  TORCH_CHECK(process_ >= 0, "dist::launch: too many processes");
  if (process_ == 0) {
    ::close(pipe.write.number());
    leave_session();
    follow(pipe.read.number(), grace_ms);
    ::_exit(0);
  }
  line_ = std::move(pipe.write);
}

OrphanWatcher::~OrphanWatcher() {
  line_.close();
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void OrphanWatcher::watch(pid_t group) const {
  [[maybe_unused]] const auto written =
      ::write(line_.number(), &group, sizeof(group));
}

void OrphanWatcher::forget(pid_t group) const {
  const pid_t message = -group;
  [[maybe_unused]] const auto written =
      ::write(line_.number(), &message, sizeof(message));
}

} // namespace ampkit::dist
