#include "data/prefetcher.h"

#include <utility>

namespace ampkit::zoo::detail {

Prefetcher::Prefetcher(int threads, int depth)
    : slots_(static_cast<size_t>(depth)) {
  threads_.reserve(static_cast<size_t>(threads));
  try {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { work(); });
    }
  } catch (...) { // the system has no more threads
    stop();
    throw;
  }
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (job_) {
      job_->cancelled = true;
    }
  }
  work_.notify_all();
  for (auto& thread : threads_) {
    thread.join();
  }
}

void Prefetcher::start(Make make, int64_t begin, int64_t end) {
  auto job = std::make_shared<Job>();
  job->make = std::move(make);
  {
    const std::lock_guard lock(mutex_);
    if (job_) {
      job_->cancelled = true;
    }
    job_ = std::move(job);
    for (auto& slot : slots_) {
      slot = {};
    }
    assigned_ = taken_ = begin;
    end_ = end;
  }
  work_.notify_all();
}

Batch Prefetcher::next() {
  std::unique_lock lock(mutex_);
  Slot& slot = slot_of(taken_);
  ready_.wait(lock, [&] { return slot.done; });
  if (slot.error) {
    std::rethrow_exception(slot.error);
  }
  Batch batch = std::move(slot.batch);
  slot = {};
  ++taken_;
  lock.unlock();
  work_.notify_one();
  return batch;
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || has_work(); });
    if (stopping_) {
      return;
    }
    make_one(lock);
  }
}

void Prefetcher::make_one(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Job> job = job_;
  const int64_t batch = assigned_++;
  lock.unlock();
  Slot made{.done = true};
  try {
    made.batch = job->make(batch, job->cancelled);
  } catch (...) {
    made.error = std::current_exception();
  }
  lock.lock();
  if (job == job_) { // else start() has been called, and the slot is another's
    slot_of(batch) = std::move(made);
    ready_.notify_one();
  }
}

Prefetcher::Slot& Prefetcher::slot_of(int64_t batch) {
  return slots_[static_cast<size_t>(batch) % slots_.size()];
}

bool Prefetcher::has_work() const {
  const auto depth = static_cast<int64_t>(slots_.size());
  return assigned_ < end_ && assigned_ < taken_ + depth;
}

} // namespace ampkit::zoo::detail
