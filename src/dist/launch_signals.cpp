#include "dist/launch_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

// By whoever started this process: nohup, or a shell's background.
bool is_ignored(int signal) {
  struct sigaction action{};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

} // namespace

LaunchSignals::LaunchSignals() {
  sigset_t ours;
  ::sigemptyset(&ours);
  ::sigaddset(&ours, SIGCHLD);
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP}) {
    // Blocked, it would come all the same.
    if (!is_ignored(signal)) {
      ::sigaddset(&ours, signal);
    }
  }
  ::pthread_sigmask(SIG_BLOCK, &ours, &before_);
  file_ = FileDescriptor(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  TORCH_CHECK(
      file_.is_open(), "dist::launch: no signalfd: ", std::strerror(errno));
}

LaunchSignals::~LaunchSignals() {
  while (next()) { // what was meant for the ranks
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> LaunchSignals::next() const {
  signalfd_siginfo info{};
  if (::read(file_.number(), &info, sizeof(info)) != sizeof(info)) {
    return std::nullopt;
  }
  return static_cast<int>(info.ssi_signo);
}

} // namespace ampkit::dist
