#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ampkit::dist {

/// Gives an error that a person can use for one of the backend. May wait.
using ExplainError = std::function<std::exception_ptr(std::exception_ptr)>;

/// What a group's collectives are waited for by. Thread-safe.
class PendingWorks {
 public:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  /// Set once an error of the future's own is being explained, which may wait.
  using Failing = std::shared_ptr<std::atomic<bool>>;

  Failing add(const Future& future);
  /// Those that are not done fail with `error`, whatever Gloo does: of two
  /// connections that both sides close, some operations wait on. Not those that
  /// have an error of their own.
  void fail(const std::exception_ptr& error);

 private:
  std::mutex mutex_;
  std::vector<std::pair<Future, Failing>> futures_;
};

/// A collective on its way, whose failure is explained.
c10::intrusive_ptr<c10d::Work> make_watched_work(
    c10::intrusive_ptr<c10d::Work> work,
    ExplainError explain,
    PendingWorks& pending);

} // namespace ampkit::dist
