#include "train/ranks.h"

#include <utility>
#include <vector>

#include <ampkit/dist/agreement.h>
#include <ampkit/io/rng_state.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ampkit::zoo {
namespace {

void broadcast_from_0(const dist::Context& context, at::Tensor tensor) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  context.process_group()->broadcast(tensors)->wait();
}

} // namespace

struct Ranks::Sum::Work {
  c10::intrusive_ptr<c10d::Work> work;
};

Ranks::Ranks(std::optional<dist::Context> context)
    : context_(std::move(context)) {}

Ranks::~Ranks() = default;

std::function<void(at::Tensor&)> Ranks::maximum() const {
  return alone() ? nullptr : dist::max_over_ranks(*context_);
}

void Ranks::attach(const Model& model, const Precision& precision) {
  model_ = model;
  if (!alone()) {
    ddp_ = std::make_unique<dist::DistributedDataParallel>(
        *model.module,
        *context_,
        dist::DistributedDataParallelOptions{.reduce_dtype = precision.reduce});
  }
}

at::Tensor Ranks::forward(const at::Tensor& input, bool synchronise) {
  if (!ddp_) {
    return model_->forward(input);
  }
  const auto pass = [&] { return model_->forward(input); };
  if (synchronise) {
    return ddp_->forward(pass);
  }
  const auto no_sync = ddp_->no_sync();
  return ddp_->forward(pass);
}

at::Tensor Ranks::weigh(const at::Tensor& mean, const Batch& batch) const {
  if (alone()) {
    return mean;
  }
  const auto share = static_cast<double>(batch.counted_images()) *
                     static_cast<double>(size()) /
                     static_cast<double>(batch.step_images);
  return mean * share;
}

void Ranks::share_buffers() const {
  if (alone()) {
    return;
  }
  for (const auto& buffer : model_->module->buffers()) {
    if (buffer.defined()) {
      broadcast_from_0(*context_, buffer.detach());
    }
  }
}

void Ranks::sum_(at::Tensor& values) const {
  if (!alone()) {
    values.copy_(dist::sum_over_ranks(*context_)(values));
  }
}

void Ranks::at_step(int64_t step) const {
  if (context_) {
    context_->at_step(step);
  }
}

const at::Tensor& Ranks::Sum::wait() {
  if (work_) {
    work_->work->wait();
    work_.reset();
  }
  return values_;
}

Ranks::Sum Ranks::begin_sum(const at::Tensor& loss, bool stop) const {
  Sum sum;
  sum.values_ = loss.detach().to(at::kFloat).reshape({1});
  if (alone()) {
    return sum;
  }
  const torch::NoGradGuard no_grad;
  sum.values_ = at::cat({sum.values_, at::full({1}, stop ? 1.0F : 0.0F)});
  std::vector<at::Tensor> tensors{sum.values_};
  sum.work_ = std::make_shared<Sum::Work>(
      Sum::Work{context_->process_group()->allreduce(tensors)});
  return sum;
}

at::Tensor Ranks::random_states() const {
  const auto mine = io::rng_state().tensor("cpu");
  auto all = at::zeros({size(), mine.numel()}, at::kInt);
  all[rank()].copy_(mine);
  sum_(all);
  return all.to(at::kByte);
}

void Ranks::set_random_state(const at::Tensor& states) const {
  if (states.dim() == 2 && states.size(0) == size()) {
    io::StateDict state;
    state.set("cpu", states[rank()].clone());
    io::set_rng_state(state);
  }
}

std::string text_of_rank_0(
    const dist::Context& context, const std::string& text) {
  auto length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  broadcast_from_0(context, length);
  auto bytes = at::zeros({length.item<int64_t>()}, at::kByte);
  if (context.rank() == 0) {
    std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  }
  broadcast_from_0(context, bytes);
  const auto* first = bytes.const_data_ptr<uint8_t>();
  return {first, first + bytes.numel()};
}

} // namespace ampkit::zoo
