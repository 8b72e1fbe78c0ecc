#include <memory>

#include <ampkit/amp/autocast.h>
#include <ampkit/zoo/models/gpt.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

// Counts what LibTorch's CPU allocator gives out and takes back.
class Memory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(
      void* /*pointer*/,
      int64_t size,
      size_t /*total_allocated*/,
      size_t /*total_reserved*/,
      c10::Device /*device*/) override {
    held_ += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t held() const { return held_; }

 private:
  int64_t held_ = 0;
};

// What forward has allocated and still holds when it ends, which is when a
// step holds the most activations: all that backward needs, and the 16-bit
// copies of weights among it.
class ActivationBytes : public Worker {
 public:
  explicit ActivationBytes(const Precision& precision)
      : precision_(precision) {}

  nlohmann::json check() override { return {{"loss", loss().item<double>()}}; }

  // "Seconds" here are megabytes.
  double run() override {
    const auto memory = std::make_shared<Memory>();
    torch::Tensor kept;
    {
      const c10::DebugInfoGuard guard(
          c10::DebugInfoKind::PROFILER_STATE, memory);
      kept = loss();
    }
    return static_cast<double>(memory->held()) / 1e6;
  }

 private:
  torch::Tensor loss() {
    Autocast autocast(torch::kCPU, precision_);
    return gpt_->loss(tokens_, targets_);
  }

  Precision precision_;
  // The depth of the smallest GPT-2 and a quarter of its width.
  zoo::Gpt gpt_{zoo::GptOptions{
      .vocabulary = 1024,
      .width = 192,
      .layers = 12,
      .heads = 3,
      .length = 128}};
  torch::Tensor tokens_ = torch::randint(0, 1024, {32, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {32, 128}, torch::kLong);
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
