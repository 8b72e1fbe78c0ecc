#include <memory>
#include <string>

#include <ampkit/amp/autocast.h>
#include <ampkit/zoo/models/gpt.h>
#include <torch/torch.h>

#include "amp/allocated_bytes.h"
#include "worker.h"

namespace ampkit::bench {
namespace {

// The most that a step allocates at any time beyond weights, gradients and
// batch: activations, 16-bit copies of weights, what the ops of backward take
// besides and, with recomputation, the inside of a block.
class ActivationBytes : public Worker {
 public:
  ActivationBytes(
      const Precision& precision, bool recompute, int64_t loss_chunks)
      : precision_(precision), gpt_(sizes(recompute, loss_chunks)) {
    loss().backward(); // the gradients are there from now on
  }

  nlohmann::json check() override { return {{"loss", loss().item<double>()}}; }

  // "Seconds" here are megabytes.
  double run() override {
    const auto bytes = std::make_shared<AllocatedBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, bytes);
    loss().backward();
    return static_cast<double>(bytes->peak()) / 1e6;
  }

 private:
  torch::Tensor loss() {
    Autocast autocast(torch::kCPU, precision_);
    return gpt_->loss(tokens_, targets_);
  }

  // The depth of the smallest GPT-2 and a quarter of its width.
  static zoo::GptOptions sizes(bool recompute, int64_t loss_chunks) {
    return {
        .vocabulary = 1024,
        .width = 192,
        .layers = 12,
        .heads = 3,
        .length = 128,
        .recompute = recompute,
        .loss_chunks = loss_chunks};
  }

  Precision precision_;
  zoo::Gpt gpt_;
  torch::Tensor tokens_ = torch::randint(0, 1024, {32, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {32, 128}, torch::kLong);
};

// activation_bytes PRECISION [recompute|LOSS_CHUNKS]
std::unique_ptr<Worker> make_activation_bytes(
    std::span<const std::string> args) {
  TORCH_CHECK(!args.empty(), "activation_bytes: expected a precision");
  const bool recompute = args.size() > 1 && args[1] == "recompute";
  const bool chunked = args.size() > 1 && !recompute;
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<ActivationBytes>(
      Precision::parse(args.front()),
      recompute,
      chunked ? std::stoll(args[1]) : 1);
}

const Registration kActivationBytes{"activation_bytes", make_activation_bytes};

} // namespace
} // namespace ampkit::bench
