#include <ampkit/amp/recompute.h>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/container/sequential.h>

#include "amp/recompute_frame.h"

namespace ampkit {
namespace {

using Function = std::function<at::Tensor(at::Tensor)>;

at::Tensor run(const std::vector<Function>& functions, at::Tensor value) {
  for (const Function& function : functions) {
    value = function(std::move(value));
  }
  return value;
}

} // namespace

namespace recompute_detail {

struct Scope::Active {
  explicit Active(std::shared_ptr<Frame> call)
      : frame(std::move(call)),
        hooks(*frame),
        keep(frame->kept(), KeepScope::Mode::keep) {}

  std::shared_ptr<Frame> frame;
  SavedTensorScope hooks;
  KeepScope keep;
};

Scope::Scope(
    const RecomputeOptions& options,
    const std::vector<at::Tensor>& inputs,
    Rerun rerun) {
  if (c10::GradMode::is_enabled()) {
    active_ = std::make_unique<Active>(
        std::make_shared<Frame>(options, inputs, std::move(rerun)));
  }
}

Scope::~Scope() {
  if (active_ != nullptr) {
    active_->frame->end_forward();
  }
}

} // namespace recompute_detail

at::Tensor checkpoint_sequential(
    const std::vector<Function>& functions,
    int64_t segments,
    const at::Tensor& input,
    const RecomputeOptions& options) {
  const auto count = static_cast<int64_t>(functions.size());
  TORCH_CHECK_VALUE(
      segments >= 1 && segments <= count,
      "checkpoint_sequential: segments must be in [1, ",
      count,
      "], the number of functions, got ",
      segments);
  const int64_t length = count / segments;
  at::Tensor value = input;
  auto first = functions.begin();
  for (int64_t segment = 0; segment + 1 < segments; ++segment) {
    const auto last = first + length;
    value = checkpoint(
        options,
        [part = std::vector<Function>(first, last)](at::Tensor x) {
          return run(part, std::move(x));
        },
        std::move(value));
    first = last;
  }
  return run({first, functions.end()}, std::move(value));
}

at::Tensor checkpoint_sequential(
    torch::nn::SequentialImpl& functions,
    int64_t segments,
    const at::Tensor& input,
    const RecomputeOptions& options) {
  std::vector<Function> calls;
  calls.reserve(functions.size());
  for (torch::nn::AnyModule& module : functions) {
    // A copy shares the module.
    calls.emplace_back([module](at::Tensor x) mutable {
      return module.forward<at::Tensor>(std::move(x));
    });
  }
  return checkpoint_sequential(calls, segments, input, options);
}

} // namespace ampkit
