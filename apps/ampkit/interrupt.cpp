#include "interrupt.h"

#include <csignal>

#include <unistd.h>

namespace ampkit::app {
namespace {

volatile std::sig_atomic_t caught = 0;
volatile std::sig_atomic_t capture = 0;

// Only calls that are safe in a signal handler.
void on_signal(int /*signal*/) {
  // First: another thread may take the second signal while this one writes.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  caught = 1;
  constexpr char kText[] =
      "\nampkit: finishing the step and saving; once more to stop at once\n";
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
}

void on_capture_request(int /*signal*/) {
  capture = 1;
}

} // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART; // no read or write of ours fails with EINTR
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() {
  return caught != 0;
}

void catch_capture_requests() {
  struct sigaction action{};
  action.sa_handler = on_capture_request;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

bool capture_asked() {
  const bool asked = capture != 0;
  if (asked) {
    capture = 0;
  }
  return asked;
}

} // namespace ampkit::app
