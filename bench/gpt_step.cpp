#include <optional>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/precision_controller.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "small_gpt.h"
#include "worker.h"

namespace ampkit::bench {
namespace {

// peer/gpt_step.py, in the precision of the worker's argument, watched by a
// PrecisionController or not.
class GptStep : public Worker {
 public:
  GptStep(const Precision& precision, int64_t steps, bool controlled)
      : precision_(precision), steps_(steps), scaler_(precision) {
    if (controlled) {
      controller_.emplace(
          *gpt_, PrecisionControllerOptions{.dtype = precision.compute});
      options_.modules = controller_->modules();
    }
  }

  nlohmann::json check() override {
    return losses([this] { return step(); }, 2);
  }

  double run() override {
    return seconds_per_call([this] { step(); }, steps_);
  }

 private:
  torch::Tensor step() {
    optimizer_.zero_grad();
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, precision_, options_);
      loss = gpt_->loss(tokens_, targets_);
    }
    scaler_.scale(loss).backward();
    const auto result = scaler_.step(optimizer_, {.max_norm = 1.0});
    scaler_.update();
    if (controller_.has_value()) {
      controller_->update(result);
    }
    return loss.detach();
  }

  Precision precision_;
  int64_t steps_; // a repetition
  zoo::Gpt gpt_{small_gpt()};
  torch::Tensor tokens_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  optim::AdamW optimizer_{gpt_->parameters(), {.lr = 1e-4}};
  GradScaler scaler_;
  std::optional<PrecisionController> controller_;
  AutocastOptions options_;
};

// gpt_step PRECISION [STEPS [controlled]]
std::unique_ptr<Worker> make_gpt_step(std::span<const std::string> args) {
  TORCH_CHECK(!args.empty(), "gpt_step: expected a precision");
  const int64_t steps = args.size() > 1 ? std::stoll(args[1]) : 2;
  const bool controlled = args.size() > 2 && args[2] == "controlled";
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<GptStep>(
      Precision::parse(args.front()), steps, controlled);
}

const Registration kGptStep{"gpt_step", make_gpt_step};

} // namespace
} // namespace ampkit::bench
