#include "dist/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) {
    result.push_back(const_cast<char*>(text.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

/// Everything that the new process needs, made before it is: between fork() and
/// exec() only calls are allowed that are safe in a signal handler.
struct ReadyToStart {
  std::vector<char*> command;
  std::vector<char*> environment;
  cpu_set_t cores{};
  bool bind = false;
  int out = -1;
  int err = -1;
  int report = -1; // where the reason goes if it fails
  pid_t parent = -1;

  [[noreturn]] void become_rank() {
    ::setpgid(0, 0);
    // So that no rank outlives the launcher, however that one dies.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) {
      ::_exit(1); // it has died already
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (bind) {
      ::sched_setaffinity(0, sizeof(cores), &cores);
    }
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::execvpe(command.front(), command.data(), environment.data());
    const int reason = errno;
    [[maybe_unused]] const auto written =
        ::write(report, &reason, sizeof(reason));
    ::_exit(127);
  }
};

ReadyToStart ready(const RankStart& start) {
  ReadyToStart result{
      .command = pointers(start.command),
      .environment = pointers(start.environment),
      .bind = !start.cores.processors.empty(),
      .parent = ::getpid()};
  CPU_ZERO(&result.cores);
  for (const int processor : start.cores.processors) {
    CPU_SET(processor, &result.cores);
  }
  return result;
}

std::string log_path(const std::string& log, const char* ending) {
  return log.empty() ? "" : log + ending;
}

} // namespace

RankProcess::RankProcess(
    int rank, const std::string& log, const LaunchOptions& options)
    : rank_(rank),
      out_({.rank = rank}, log_path(log, ".out"), options, last_),
      err_(
          {.rank = rank, .to_stderr = true},
          log_path(log, ".err"),
          options,
          last_) {}

void RankProcess::start(const RankStart& start) {
  Pipe report;
  auto child = ready(start);
  child.out = out_.write_end();
  child.err = err_.write_end();
  child.report = report.write.number();
  process_ = ::fork();
  TORCH_CHECK(
      process_ >= 0, "dist::launch: cannot fork: ", std::strerror(errno));
  if (process_ == 0) {
    child.become_rank();
  }
  end_ =
      FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
  ::setpgid(process_, process_); // whichever of the two comes first
  out_.close_write();
  err_.close_write();
  report.write.close();
  int reason = 0;
  if (::read(report.read.number(), &reason, sizeof(reason)) > 0) {
    reap();
    TORCH_CHECK_VALUE(
        false,
        "dist::launch: cannot start '",
        start.command.front(),
        "': ",
        std::strerror(reason));
  }
}

std::optional<RankEnd> RankProcess::wait_for_end(int flags) {
  siginfo_t info{};
  // Left a zombie for the moment: its number can't be somebody else's while
  // its group gets the signal.
  while (::waitid(
             P_PID,
             static_cast<id_t>(process_),
             &info,
             WEXITED | WNOWAIT | flags) < 0) {
    TORCH_INTERNAL_ASSERT(errno == EINTR, "dist::launch: lost a rank");
  }
  if (info.si_pid == 0) {
    return std::nullopt;
  }
  send(SIGKILL);
  ::waitpid(process_, nullptr, 0);
  ended_ = true;
  end_.close();
  out_.finish();
  err_.finish();
  return info.si_code == CLD_EXITED
             ? RankEnd{.status = info.si_status}
             : RankEnd{
                   .status = 128 + info.si_status, .signal = info.si_status};
}

std::optional<RankEnd> RankProcess::try_reap() {
  return wait_for_end(WNOHANG);
}

RankEnd RankProcess::reap() {
  return wait_for_end(0).value_or(RankEnd{});
}

void RankProcess::send(int signal) const {
  ::kill(-process_, signal);
}

} // namespace ampkit::dist
