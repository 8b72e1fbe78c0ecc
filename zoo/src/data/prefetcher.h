#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <ampkit/zoo/data/image_loader.h>

namespace ampkit::zoo::detail {

/// Makes numbered batches ahead of their use, in threads of its own, and gives
/// them out in order. At most `depth` are ready or being made. One thread at a
/// time may call it.
class Prefetcher {
 public:
  /// Makes one batch; called from several threads. Should return soon, with
  /// anything, once `cancelled` is set.
  using Make =
      std::function<Batch(int64_t batch, const std::atomic<bool>& cancelled)>;

  Prefetcher(int threads, int depth);
  /// Cancels what is being made and waits for it.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Drops everything and begins to make the batches from `begin` to before
  /// `end`.
  void start(Make make, int64_t begin, int64_t end);

  /// The next batch; waits until it is made. Not to be called beyond the end.
  /// Rethrows what its making threw, at each call.
  Batch next();

 private:
  struct Job {
    Make make;
    std::atomic<bool> cancelled = false;
  };
  struct Slot {
    bool done = false;
    Batch batch;
    std::exception_ptr error; // or this
  };

  void stop();
  void work();
  void make_one(std::unique_lock<std::mutex>& lock);
  Slot& slot_of(int64_t batch);
  bool has_work() const;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ready_;
  // All below is guarded by mutex_.
  bool stopping_ = false;
  std::shared_ptr<Job> job_;
  std::vector<Slot> slots_;
  int64_t assigned_ = 0; // the next batch to be made
  int64_t taken_ = 0; // the next batch to be given out
  int64_t end_ = 0;
  // Last, so that they stop before what they use goes.
  std::vector<std::thread> threads_;
};

} // namespace ampkit::zoo::detail
