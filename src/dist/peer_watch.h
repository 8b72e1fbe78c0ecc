#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <ampkit/dist/launch_environment.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/rank_progress.h"

namespace ampkit::dist {

/// Finds out which rank was lost, and tells all: a thread leaves signs of life
/// in the store, with what its rank does, and looks for those of others. A
/// second one judges whether the first still gets answers.
///
/// Each rank watches the one before it. One that gave no sign for
/// `kSilentRounds` of a watcher's own rounds is lost: counted in rounds, so
/// that a job that was stopped as a whole and goes on blames nobody. The first
/// loss that is found stands in the store for all to read; what follows from it
/// is not blamed.
class PeerWatch {
 public:
  static constexpr std::chrono::milliseconds kRound{500};
  static constexpr int kSilentRounds = 10;
  /// After a collective failed, when the rank is looked for.
  static constexpr int kSuspiciousRounds = 5;

  /// `store`: a connection of its own, under the job's prefix; `progress`: of
  /// this rank. `on_loss` is called once, in the thread, when a rank was lost.
  PeerWatch(
      c10::intrusive_ptr<c10d::Store> store,
      const LaunchEnvironment& environment,
      std::shared_ptr<const RankProgress> progress,
      std::function<void(const std::string& lost)> on_loss);
  /// As leave().
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  /// This rank goes, in good order.
  void leave();
  /// This rank gives up: others read `why`, unless another was lost before.
  void fail(const std::string& why);

  /// Whether a rank was lost, so far.
  bool lost_one() const;

  /// Which rank was lost and what it did; waits until that is known, or some
  /// seconds. Empty: all of them live.
  std::string find_lost();

  /// What each rank does, a line each, as far as it is known.
  std::string all_ranks();

 private:
  class State;

  /// Ends the threads; whether there is a store to say goodbye to.
  bool stop();

  // Shared with the threads: one that waits for a store which does not answer
  // is left behind.
  std::shared_ptr<State> state_;
  std::thread watcher_;
  std::thread judge_;
  bool gone_ = false; // said goodbye
};

} // namespace ampkit::dist
