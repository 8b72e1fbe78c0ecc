#include <memory>

#include <ampkit/amp/autocast.h>
#include <ampkit/zoo/models/gpt.h>
#include <torch/torch.h>

#include "amp/allocated_bytes.h"
#include "worker.h"

namespace ampkit::bench {
namespace {

// What a step allocates beyond weights, gradients and batch. held: what it
// holds when forward ends, the activations that backward needs and the 16-bit
// copies of weights among them. peak: the most at any time, what the ops of
// backward take besides and, with recomputation, the inside of a block.
class ActivationBytes : public Worker {
 public:
  ActivationBytes(const Precision& precision, bool peak, bool recompute)
      : precision_(precision), peak_(peak), gpt_(sizes(recompute)) {
    loss().backward(); // the gradients are there from now on
  }

  nlohmann::json check() override { return {{"loss", loss().item<double>()}}; }

  // "Seconds" here are megabytes.
  double run() override {
    const auto bytes = std::make_shared<AllocatedBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, bytes);
    const auto result = loss();
    const auto held = bytes->held();
    result.backward();
    return static_cast<double>(peak_ ? bytes->peak() : held) / 1e6;
  }

 private:
  torch::Tensor loss() {
    Autocast autocast(torch::kCPU, precision_);
    return gpt_->loss(tokens_, targets_);
  }

  // The depth of the smallest GPT-2 and a quarter of its width.
  static zoo::GptOptions sizes(bool recompute) {
    return {
        .vocabulary = 1024,
        .width = 192,
        .layers = 12,
        .heads = 3,
        .length = 128,
        .recompute = recompute};
  }

  Precision precision_;
  bool peak_;
  zoo::Gpt gpt_;
  torch::Tensor tokens_ = torch::randint(0, 1024, {32, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {32, 128}, torch::kLong);
};

// activation_bytes PRECISION held|peak [recompute]
std::unique_ptr<Worker> make_activation_bytes(
    std::span<const std::string> args) {
  TORCH_CHECK(
      args.size() >= 2 && (args[1] == "held" || args[1] == "peak"),
      "activation_bytes: expected a precision, and held or peak");
  const bool recompute = args.size() > 2 && args[2] == "recompute";
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<ActivationBytes>(
      Precision::parse(args.front()), args[1] == "peak", recompute);
}

const Registration kActivationBytes{"activation_bytes", make_activation_bytes};

} // namespace
} // namespace ampkit::bench
