#include "dist/watched_work.h"

#include <utility>
#include <vector>

namespace ampkit::dist {
namespace {

using c10::ivalue::Future;

class WatchedWork : public c10d::Work {
 public:
  WatchedWork(c10::intrusive_ptr<c10d::Work> work, ExplainError explain)
      : Work(-1, work->retrieveOpType()),
        work_(std::move(work)),
        explain_(std::move(explain)) {}

  bool isCompleted() override { return work_->isCompleted(); }
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
    std::exception_ptr error;
    try {
      return work_->wait(timeout);
    } catch (...) {
      error = std::current_exception();
    }
    std::rethrow_exception(explain_(error));
  }

  c10::intrusive_ptr<Future> getFuture() override {
    const auto inner = work_->getFuture();
    auto outer =
        c10::make_intrusive<Future>(inner->elementType(), inner->devices());
    inner->addCallback([outer, explain = explain_](Future& done) {
      if (done.hasError()) {
        outer->setError(explain(done.exception_ptr()));
      } else {
        outer->markCompleted(done.value());
      }
    });
    return outer;
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  ExplainError explain_;
};

} // namespace

c10::intrusive_ptr<c10d::Work> make_watched_work(
    c10::intrusive_ptr<c10d::Work> work, ExplainError explain) {
  return c10::make_intrusive<WatchedWork>(std::move(work), std::move(explain));
}

} // namespace ampkit::dist
