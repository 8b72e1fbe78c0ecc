#include <algorithm>
#include <memory>

#include <ampkit/amp/autocast.h>
#include <ampkit/zoo/models/gpt.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

// Follows what LibTorch's CPU allocator gives out and takes back.
class PeakMemory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(
      void* /*pointer*/,
      int64_t size,
      size_t /*total_allocated*/,
      size_t /*total_reserved*/,
      c10::Device /*device*/) override {
    now_ += size;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

// The most bytes that forward and the start of backward hold at once, beyond
// weights and batch: activations kept for backward, and the casts of weights.
class ActivationBytes : public Worker {
 public:
  explicit ActivationBytes(const Precision& precision)
      : precision_(precision) {}

  nlohmann::json check() override { return {{"loss", loss().item<double>()}}; }

  // "Seconds" here are megabytes.
  double run() override {
    const auto memory = std::make_shared<PeakMemory>();
    {
      const c10::DebugInfoGuard guard(
          c10::DebugInfoKind::PROFILER_STATE, memory);
      loss().backward();
    }
    gpt_->zero_grad();
    return static_cast<double>(memory->peak()) / 1e6;
  }

 private:
  torch::Tensor loss() {
    Autocast autocast(torch::kCPU, precision_);
    return gpt_->loss(tokens_, targets_);
  }

  Precision precision_;
  zoo::Gpt gpt_{zoo::GptOptions{
      .vocabulary = 1024,
      .width = 256,
      .layers = 4,
      .heads = 4,
      .length = 128}};
  torch::Tensor tokens_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
};

// activation_bytes PRECISION
std::unique_ptr<Worker> make(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 1, "activation_bytes: expected a precision");
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<ActivationBytes>(Precision::parse(args.front()));
}

const Registration kActivationBytes{"activation_bytes", make};

} // namespace
} // namespace ampkit::bench
