#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/dist/launch.h>

#include "dist/launch_signals.h"
#include "dist/orphan_watcher.h"
#include "dist/rank_process.h"

namespace ampkit::dist {

/// The ranks of one start, from their start to the last one's end.
class RankSet {
 public:
  RankSet(
      const LaunchOptions& options,
      const LaunchSignals& signals,
      const OrphanWatcher& watcher);

  /// Ends what still runs.
  ~RankSet();
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;
  RankSet(RankSet&&) = delete;
  RankSet& operator=(RankSet&&) = delete;

  void start(int rank, const std::string& log, const RankStart& start);

  /// Waits until all have ended, as launch() describes.
  void run();

  const std::optional<RankFailure>& failure() const { return failure_; }
  int interrupted_by() const { return interrupted_by_; }

  /// The first status that is not 0.
  int status() const { return status_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool any_runs() const;
  void wait_for_news();
  void take_signals();
  void pass_on(int signal);
  void stop_for_a_while();
  void take_ends();
  void blame(const std::vector<std::pair<RankProcess*, RankEnd>>& ended);
  void end_by(Clock::time_point limit);
  void send_all(int signal) const;

  const LaunchOptions& options_;
  const LaunchSignals& signals_;
  const OrphanWatcher& watcher_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::optional<Clock::time_point> kill_at_;
  std::optional<RankFailure> failure_;
  int interrupted_by_ = 0;
  int status_ = 0;
};

} // namespace ampkit::dist
