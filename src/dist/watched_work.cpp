#include "dist/watched_work.h"

#include <utility>
#include <vector>

namespace ampkit::dist {
namespace {

using c10::ivalue::Future;

class WatchedWork : public c10d::Work {
 public:
  WatchedWork(
      c10::intrusive_ptr<c10d::Work> work,
      ExplainError explain,
      PendingWorks& pending)
      : Work(-1, work->retrieveOpType()),
        work_(std::move(work)),
        explain_(std::move(explain)) {
    try {
      const auto inner = work_->getFuture();
      future_ =
          c10::make_intrusive<Future>(inner->elementType(), inner->devices());
      const auto failing = pending.add(future_);
      inner->addCallback(
          [outer = future_, failing, explaining = explain_](Future& done) {
            *failing = done.hasError();
            finish_like(*outer, done, explaining);
          });
    } catch (const c10::Error&) {
      future_.reset(); // reduce_scatter has none
    }
  }

  bool isCompleted() override {
    return future_ ? future_->completed() : work_->isCompleted();
  }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  void abort() override { work_->abort(); }
  uint64_t getSequencenumber() const override {
    return work_->getSequencenumber();
  }

  bool wait(std::chrono::milliseconds timeout) override {
    if (future_ && timeout == kNoTimeout) {
      future_->waitAndThrow();
      return true;
    }
    std::exception_ptr error;
    try {
      return work_->wait(timeout);
    } catch (...) {
      error = std::current_exception();
    }
    std::rethrow_exception(explain_(error));
  }

  c10::intrusive_ptr<Future> getFuture() override {
    return future_ ? future_ : work_->getFuture();
  }

 private:
  static void finish_like(
      Future& outer, Future& done, const ExplainError& explain) {
    if (done.hasError()) {
      outer.setErrorIfNeeded(explain(done.exception_ptr()));
      return;
    }
    try {
      outer.markCompleted(done.value());
    } catch (const c10::Error&) {
      return; // it has failed meanwhile, with the group
    }
  }

  c10::intrusive_ptr<c10d::Work> work_;
  ExplainError explain_;
  c10::intrusive_ptr<Future> future_; // null: the work has none
};

} // namespace

PendingWorks::Failing PendingWorks::add(const PendingWorks::Future& future) {
  const auto failing = std::make_shared<std::atomic<bool>>(false);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(
      futures_, [](const auto& old) { return old.first->completed(); });
  futures_.emplace_back(future, failing);
  return failing;
}

void PendingWorks::fail(const std::exception_ptr& error) {
  decltype(futures_) all;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    all.swap(futures_);
  }
  for (const auto& [future, failing] : all) {
    if (!*failing) {
      future->setErrorIfNeeded(error);
    }
  }
}

c10::intrusive_ptr<c10d::Work> make_watched_work(
    c10::intrusive_ptr<c10d::Work> work,
    ExplainError explain,
    PendingWorks& pending) {
  return c10::make_intrusive<WatchedWork>(
      std::move(work), std::move(explain), pending);
}

} // namespace ampkit::dist
