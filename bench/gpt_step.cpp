#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/zoo/models/gpt.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

// peer/gpt_step.py, in the precision of the worker's argument.
class GptStep : public Worker {
 public:
  explicit GptStep(const Precision& precision)
      : precision_(precision), scaler_(precision) {}

  nlohmann::json check() override {
    return losses([this] { return step(); }, 2);
  }

  double run() override {
    return seconds_per_call([this] { step(); }, 2);
  }

 private:
  torch::Tensor step() {
    optimizer_.zero_grad();
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, precision_);
      loss = gpt_->loss(tokens_, targets_);
    }
    scaler_.scale(loss).backward();
    scaler_.step(optimizer_, {.max_norm = 1.0});
    scaler_.update();
    return loss.detach();
  }

  Precision precision_;
  // The sizes of peer/gpt_step.py.
  zoo::Gpt gpt_{zoo::GptOptions{
      .vocabulary = 1024,
      .width = 256,
      .layers = 4,
      .heads = 4,
      .length = 128,
      .tied_head = false}};
  torch::Tensor tokens_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  optim::AdamW optimizer_{gpt_->parameters(), {.lr = 1e-4}};
  GradScaler scaler_;
};

// gpt_step PRECISION
std::unique_ptr<Worker> make(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 1, "gpt_step: expected a precision");
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<GptStep>(Precision::parse(args.front()));
}

const Registration kGptStep{"gpt_step", make};

} // namespace
} // namespace ampkit::bench
