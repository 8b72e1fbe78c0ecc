#include "dist/reduce_hook.h"

#include <utility>

#include <torch/torch.h>

namespace ampkit::dist {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

class ReduceHook : public c10d::CppCommHookInterface<Group> {
 public:
  ReduceHook(const Group& group, c10::ScalarType dtype)
      : CppCommHookInterface(group),
        dtype_(dtype),
        before_(
            c10::elementSize(dtype) > 2 ? group->getSize()
                                        : divisor_before_sum(group->getSize())),
        after_(group->getSize() / before_) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(
      c10d::GradBucket& bucket) override {
    const at::NoGradGuard no_grad;
    const auto gradients = bucket.getBuffer().detach();
    // Divided in the wider of the two dtypes.
    const bool widens = gradients.element_size() <
                        static_cast<int64_t>(c10::elementSize(dtype_));
    auto sent = widens ? gradients.to(dtype_).div_(before_)
                       : gradients.div(before_).to(dtype_);
    std::vector<at::Tensor> tensors{sent};
    return state_->allreduce(tensors)->getFuture()->then(
        [gradients,
         after = after_](c10::ivalue::Future& future) -> c10::IValue {
          const at::NoGradGuard no_grad_here; // another thread
          const auto sum = future.value().toTensorVector().front();
          if (sum.element_size() > gradients.element_size()) {
            gradients.copy_(after == 1 ? sum : sum.div(after));
          } else {
            gradients.copy_(sum);
            if (after != 1) {
              gradients.div_(after);
            }
          }
          return std::vector<at::Tensor>{gradients};
        },
        c10::ListType::create(c10::TensorType::get()));
  }

 private:
  c10::ScalarType dtype_;
  double before_;
  double after_;
};

} // namespace

double divisor_before_sum(int world_size) {
  double divisor = 1;
  while (divisor * divisor < world_size) {
    divisor *= 2;
  }
  return divisor;
}

std::unique_ptr<c10d::CommHookInterface> make_reduce_hook(
    const Group& group, c10::ScalarType dtype) {
  return std::make_unique<ReduceHook>(group, dtype);
}

} // namespace ampkit::dist
