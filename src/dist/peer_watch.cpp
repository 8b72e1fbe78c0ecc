#include "dist/peer_watch.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

namespace ampkit::dist {
namespace {

constexpr const char* kLost = "watch/lost";

std::string beat_key(int rank) {
  return "watch/beat_" + std::to_string(rank);
}

std::string left_key(int rank) {
  return "watch/left_" + std::to_string(rank);
}

std::vector<uint8_t> to_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// "" if there is none; get() would wait for it.
std::string read_key(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) {
    return "";
  }
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// A sign of life is "<number> <what the rank does>".
std::string without_number(const std::string& beat) {
  const auto space = beat.find(' ');
  return space == std::string::npos ? "before its first sign of life"
                                    : beat.substr(space + 1);
}

} // namespace

class PeerWatch::State {
 public:
  State(
      c10::intrusive_ptr<c10d::Store> store,
      const LaunchEnvironment& environment,
      std::shared_ptr<const RankProgress> progress,
      std::function<void(const std::string&)> on_loss)
      : store_(std::move(store)),
        environment_(environment),
        progress_(std::move(progress)),
        on_loss_(std::move(on_loss)),
        seen_(static_cast<size_t>(environment.world_size)) {}

  void watch();
  void judge();
  std::string find_lost();
  bool lost_one() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !lost_.empty();
  }
  std::string all_ranks();
  /// Whether the watching thread has ended, or will at once.
  bool stop();
  void leave();
  void fail(const std::string& why);
  /// It may refer to what keeps this. Once the threads have ended.
  void forget_callback() { on_loss_ = nullptr; }

 private:
  struct Seen {
    std::string beat;
    int rounds_silent = 0;
    bool left = false;
  };

  void round();
  void look_at(int rank, int patience);
  bool read_loss();
  void report(int rank, const std::string& what);
  void set_lost(const std::string& text);
  std::string store_is_gone() const;
  bool suspicious() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return suspicious_;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  LaunchEnvironment environment_;
  std::shared_ptr<const RankProgress> progress_;
  std::function<void(const std::string&)> on_loss_;
  std::vector<Seen> seen_; // of the watching thread

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::string lost_;
  int64_t beats_ = 0;
  bool suspicious_ = false;
  bool stopping_ = false;
  bool ended_ = false; // the watching thread has
  std::string rank_0_; // what it did
};

void PeerWatch::State::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_ && lost_.empty()) {
    ++beats_;
    lock.unlock();
    bool answered = true;
    try {
      round();
    } catch (const std::exception&) {
      answered = false;
    }
    if (!answered) {
      if (!seen_[0].left) {
        set_lost(store_is_gone());
      }
      lock.lock();
      break;
    }
    lock.lock();
    changed_.wait_for(lock, kRound, [&] { return stopping_; });
  }
  ended_ = true;
  lock.unlock();
  changed_.notify_all();
}

// What waits for a store that is stopped, as rank 0 is by SIGSTOP, waits on.
void PeerWatch::State::judge() {
  std::unique_lock<std::mutex> lock(mutex_);
  int64_t beats = 0;
  int rounds_silent = 0;
  while (!stopping_ && !ended_ && lost_.empty()) {
    changed_.wait_for(lock, kRound, [&] { return stopping_ || ended_; });
    rounds_silent = beats == beats_ ? rounds_silent + 1 : 0;
    beats = beats_;
    if (rounds_silent >= kSilentRounds) {
      lock.unlock();
      set_lost(store_is_gone());
      lock.lock();
    }
  }
}

void PeerWatch::State::round() {
  int64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    number = beats_;
  }
  store_->set(
      beat_key(environment_.rank),
      to_bytes(c10::str(number, " ", progress_->text())));
  if (read_loss()) {
    return;
  }
  const auto size = environment_.world_size;
  if (suspicious()) {
    for (int i = 1; i < size; ++i) {
      look_at((environment_.rank + i) % size, kSuspiciousRounds);
    }
    return;
  }
  look_at(0, kSilentRounds); // also so as to know what it did
  // The nearest one before this that is still there.
  for (int i = 1; i < size; ++i) {
    const int rank = (environment_.rank + size - i) % size;
    if (rank != 0) {
      look_at(rank, kSilentRounds);
    }
    if (!seen_[static_cast<size_t>(rank)].left) {
      return;
    }
  }
}

void PeerWatch::State::look_at(int rank, int patience) {
  auto& seen = seen_[static_cast<size_t>(rank)];
  if (rank == environment_.rank) {
    return;
  }
  if (!seen.left) {
    auto beat = read_key(*store_, beat_key(rank));
    if (rank == 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      rank_0_ = without_number(beat);
    }
    const bool alive = beat != seen.beat;
    seen.rounds_silent = alive ? 0 : seen.rounds_silent + 1;
    seen.beat = std::move(beat);
  }
  const auto last = read_key(*store_, left_key(rank));
  if (!last.empty()) {
    seen.left = true;
    if (suspicious()) { // a collective failed for want of it
      report(rank, "ended while others still needed it, " + last);
    }
  } else if (seen.rounds_silent >= patience) {
    report(rank, "was lost, last heard of " + without_number(seen.beat));
  }
}

bool PeerWatch::State::read_loss() {
  const auto text = read_key(*store_, kLost);
  if (!text.empty()) {
    set_lost(text);
  }
  return !text.empty();
}

void PeerWatch::State::report(int rank, const std::string& what) {
  const auto text = c10::str("rank ", rank, " ", what);
  const auto first = store_->compareSet(kLost, {}, to_bytes(text));
  set_lost({first.begin(), first.end()});
}

void PeerWatch::State::set_lost(const std::string& text) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!lost_.empty()) {
      return;
    }
    lost_ = text;
  }
  changed_.notify_all();
  if (on_loss_) {
    on_loss_(text);
  }
}

std::string PeerWatch::State::store_is_gone() const {
  if (environment_.launcher_keeps_store) {
    return "the launcher, which keeps the store, was lost";
  }
  return "rank 0, which keeps the store, was lost" +
         (rank_0_.empty() ? "" : ", last heard of " + rank_0_);
}

std::string PeerWatch::State::find_lost() {
  std::unique_lock<std::mutex> lock(mutex_);
  suspicious_ = true;
  changed_.wait_for(lock, (kSilentRounds + 3) * kRound, [&] {
    return !lost_.empty() || stopping_ || ended_;
  });
  return lost_;
}

std::string PeerWatch::State::all_ranks() {
  std::string text;
  for (int rank = 0; rank < environment_.world_size; ++rank) {
    const auto beat = read_key(*store_, beat_key(rank));
    text += c10::str("\n  rank ", rank, " ", without_number(beat));
  }
  return text;
}

bool PeerWatch::State::stop() {
  std::unique_lock<std::mutex> lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, 2 * kRound, [&] { return ended_; });
}

void PeerWatch::State::leave() {
  store_->set(left_key(environment_.rank), to_bytes(progress_->text()));
  if (environment_.rank > 0 || environment_.launcher_keeps_store) {
    return;
  }
  // The store goes with rank 0: others leave too, or see that it left.
  std::vector<std::string> others;
  for (int rank = 1; rank < environment_.world_size; ++rank) {
    others.push_back(left_key(rank));
  }
  store_->wait(others, 2 * kRound);
}

void PeerWatch::State::fail(const std::string& why) {
  report(
      environment_.rank,
      c10::str("failed ", progress_->text(), why.empty() ? "" : ": ", why));
  if (environment_.rank == 0 && !environment_.launcher_keeps_store) {
    std::this_thread::sleep_for(2 * kRound); // until others have read it
  }
}

PeerWatch::PeerWatch(
    c10::intrusive_ptr<c10d::Store> store,
    const LaunchEnvironment& environment,
    std::shared_ptr<const RankProgress> progress,
    std::function<void(const std::string&)> on_loss)
    : state_(std::make_shared<State>(
          std::move(store),
          environment,
          std::move(progress),
          std::move(on_loss))),
      watcher_([state = state_] { state->watch(); }),
      judge_([state = state_] { state->judge(); }) {}

PeerWatch::~PeerWatch() {
  leave();
}

bool PeerWatch::stop() {
  const bool ended = state_->stop();
  if (judge_.joinable()) {
    judge_.join();
  }
  if (watcher_.joinable()) {
    ended ? watcher_.join() : watcher_.detach();
  }
  if (ended) {
    state_->forget_callback();
  }
  return ended && !std::exchange(gone_, true);
}

void PeerWatch::leave() {
  if (stop()) {
    try {
      state_->leave();
    } catch (const std::exception&) {
      return; // nobody is left, or only those who know
    }
  }
}

void PeerWatch::fail(const std::string& why) {
  if (stop()) {
    try {
      state_->fail(why);
    } catch (const std::exception&) {
      return; // the store went first
    }
  }
}

bool PeerWatch::lost_one() const {
  return state_->lost_one();
}

std::string PeerWatch::find_lost() {
  return state_->find_lost();
}

std::string PeerWatch::all_ranks() {
  try {
    return state_->all_ranks();
  } catch (const std::exception&) {
    return "";
  }
}

} // namespace ampkit::dist
