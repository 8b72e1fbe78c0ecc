#include "dist/broken_pipes.h"

#include <csignal>

namespace ampkit::dist {

void survive_broken_pipes() {
  struct sigaction present{};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 &&
      (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

} // namespace ampkit::dist
