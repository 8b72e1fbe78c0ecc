#include "dist/launch_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <c10/util/Exception.h>

namespace ampkit::dist {

LaunchSignals::LaunchSignals() {
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int signal :
       {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP}) {
    ::sigaddset(&ours, signal);
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
