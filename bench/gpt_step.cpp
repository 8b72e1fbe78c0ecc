#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "gpt.h"
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
      const auto logits = gpt_->forward(tokens_);
      loss = at::cross_entropy_loss(logits.flatten(0, 1), targets_.flatten());
    }
    scaler_.scale(loss).backward();
    scaler_.step(optimizer_, {.max_norm = 1.0});
    scaler_.update();
    return loss.detach();
  }

  Precision precision_;
  GptShape shape_;
  std::shared_ptr<Gpt> gpt_ = std::make_shared<Gpt>(shape_);
  torch::Tensor tokens_ =
      torch::randint(0, shape_.vocabulary, {8, shape_.length});
  torch::Tensor targets_ =
      torch::randint(0, shape_.vocabulary, {8, shape_.length});
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
