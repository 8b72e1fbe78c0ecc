#include "dist/rank_set.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace ampkit::dist {
namespace {

// For systems without a file for the end of a process.
constexpr std::chrono::milliseconds kTick{500};

} // namespace

RankSet::RankSet(
    const LaunchOptions& options,
    const LaunchSignals& signals,
    const OrphanWatcher& watcher)
    : options_(options), signals_(signals), watcher_(watcher) {}

RankSet::~RankSet() {
  for (const auto& rank : ranks_) {
    if (rank->runs()) {
      rank->send(SIGKILL);
      rank->reap();
      watcher_.forget(rank->process());
    }
  }
}

void RankSet::start(int rank, const std::string& log, const RankStart& start) {
  ranks_.push_back(std::make_unique<RankProcess>(rank, log, options_));
  ranks_.back()->start(start);
  watcher_.watch(ranks_.back()->process());
}

void RankSet::run() {
  while (any_runs()) {
    wait_for_news();
    take_signals();
    for (const auto& rank : ranks_) {
      for (auto* stream : rank->streams()) {
        stream->read_some();
      }
    }
    take_ends();
    if (kill_at_ && Clock::now() >= *kill_at_) {
      send_all(SIGKILL);
      kill_at_.reset();
    }
  }
}

bool RankSet::any_runs() const {
  return std::ranges::any_of(
      ranks_, [](const auto& rank) { return rank->runs(); });
}

void RankSet::wait_for_news() {
  std::vector<pollfd> files{{.fd = signals_.file(), .events = POLLIN}};
  for (const auto& rank : ranks_) {
    // Besides SIGCHLD, which another thread of this process may take.
    files.push_back({.fd = rank->end_file(), .events = POLLIN});
    for (const auto* stream : rank->streams()) {
      files.push_back({.fd = stream->read_end(), .events = POLLIN});
    }
  }
  auto wait = kTick;
  if (kill_at_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        *kill_at_ - Clock::now());
    wait = std::clamp(left, std::chrono::milliseconds(1), kTick);
  }
  ::poll(files.data(), files.size(), static_cast<int>(wait.count()));
}

void RankSet::take_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGTSTP) {
      stop_for_a_while();
    } else if (*signal != SIGCHLD) {
      pass_on(*signal);
    }
  }
}

void RankSet::pass_on(int signal) {
  send_all(signal);
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    return;
  }
  interrupted_by_ = signal;
  end_by(Clock::now() + options_.interrupt_grace);
}

// The ranks are no part of the terminal's foreground: Ctrl-Z reaches this
// process only.
void RankSet::stop_for_a_while() {
  send_all(SIGSTOP);
  ::raise(SIGSTOP);
  send_all(SIGCONT);
}

void RankSet::take_ends() {
  std::vector<std::pair<RankProcess*, RankEnd>> failed;
  for (const auto& rank : ranks_) {
    const auto end = rank->runs() ? rank->try_reap() : std::nullopt;
    if (!end) {
      continue;
    }
    watcher_.forget(rank->process());
    if (end->status != 0) {
      failed.emplace_back(rank.get(), *end);
    }
  }
  if (!failed.empty() && status_ == 0) {
    blame(failed);
  }
}

// One that lost its peers is blamed only if nothing else is known; of others
// the system does not tell who was first, but those that a signal killed are
// the likelier.
void RankSet::blame(
    const std::vector<std::pair<RankProcess*, RankEnd>>& ended) {
  const auto& [rank, end] =
      *std::ranges::max_element(ended, {}, [](const auto& one) {
        return one.second.signal != 0                 ? 2
               : one.second.status != kLostPeerStatus ? 1
                                                      : 0;
      });
  status_ = end.status;
  if (interrupted_by_ != 0) {
    return; // as it was told to
  }
  failure_ = RankFailure{
      .rank = rank->rank(),
      .process = rank->process(),
      .status = end.status,
      .signal = end.signal,
      .last_lines = rank->last_lines()};
  send_all(SIGTERM);
  end_by(Clock::now() + options_.failure_grace);
}

void RankSet::end_by(Clock::time_point limit) {
  kill_at_ = kill_at_ ? std::min(*kill_at_, limit) : limit;
}

void RankSet::send_all(int signal) const {
  for (const auto& rank : ranks_) {
    if (rank->runs()) {
      rank->send(signal);
    }
  }
}

} // namespace ampkit::dist
