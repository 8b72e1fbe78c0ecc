#include <ampkit/dist/agreement.h>

#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ampkit::dist {
namespace {

void reduce_over_ranks(
    const Context& context, at::Tensor& values, c10d::ReduceOp::RedOpType op) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors{values.detach()};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  context.process_group()->allreduce(tensors, options)->wait();
}

} // namespace

std::function<void(at::Tensor&)> max_over_ranks(const Context& context) {
  return [context](at::Tensor& values) {
    reduce_over_ranks(context, values, c10d::ReduceOp::MAX);
  };
}

std::function<at::Tensor(const at::Tensor&)> sum_over_ranks(
    const Context& context) {
  return [context](const at::Tensor& values) {
    auto sum = values.detach().clone();
    reduce_over_ranks(context, sum, c10d::ReduceOp::SUM);
    return sum;
  };
}

} // namespace ampkit::dist
