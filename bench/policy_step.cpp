#include <optional>

#include <ATen/autocast_mode.h>
#include <ampkit/amp/autocast.h>
#include <ampkit/amp/cpu_kernels.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/zoo/models/gpt.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

// LibTorch's autocast as C++ code has to switch it on by hand.
class StockAutocast {
 public:
  StockAutocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~StockAutocast() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  StockAutocast(const StockAutocast&) = delete;
  StockAutocast(StockAutocast&&) = delete;
  StockAutocast& operator=(const StockAutocast&) = delete;
  StockAutocast& operator=(StockAutocast&&) = delete;
};

// A step of a small GPT in bf16, its dtypes decided by LibTorch's lists or by
// the same lists in an OpPolicy and a ModulePolicy that knows every module.
class PolicyStep : public Worker {
 public:
  explicit PolicyStep(bool engine) {
    if (engine) {
      options_ = AutocastOptions{
          .ops = OpPolicy::pytorch(),
          .modules = ModulePolicy().set("ln_f", torch::kFloat).bind(*gpt_)};
    } else {
      // Once, so that both sides have the same CPU kernels.
      Autocast autocast(torch::kCPU, torch::kBFloat16);
    }
  }

  nlohmann::json check() override {
    return losses([this] { return step(); }, 3);
  }

  double run() override {
    return seconds_per_call([this] { step(); }, 20);
  }

 private:
  torch::Tensor loss() {
    if (options_.has_value()) {
      Autocast autocast(torch::kCPU, torch::kBFloat16, *options_);
      return gpt_->loss(tokens_, targets_);
    }
    StockAutocast autocast;
    return gpt_->loss(tokens_, targets_);
  }

  torch::Tensor step() {
    optimizer_.zero_grad();
    const auto value = loss();
    scaler_.scale(value).backward();
    scaler_.step(optimizer_, {.max_norm = 1.0});
    scaler_.update();
    return value.detach();
  }

  zoo::Gpt gpt_{zoo::GptOptions{}};
  torch::Tensor tokens_ = torch::randint(0, 256, {8, 64}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 256, {8, 64}, torch::kLong);
  optim::AdamW optimizer_{gpt_->parameters(), {.lr = 1e-4}};
  GradScaler scaler_;
  std::optional<AutocastOptions> options_;
};

// policy_step engine|stock
std::unique_ptr<Worker> make_policy_step(std::span<const std::string> args) {
  TORCH_CHECK(
      args.size() == 1 && (args[0] == "engine" || args[0] == "stock"),
      "policy_step: expected engine or stock");
  at::set_num_threads(1);
  torch::manual_seed(0);
  return std::make_unique<PolicyStep>(args[0] == "engine");
}

const Registration kPolicyStep{"policy_step", make_policy_step};

} // namespace
} // namespace ampkit::bench
