#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

namespace nn = torch::nn;

nn::Sequential make_network() {
  nn::Sequential network;
  for (int64_t i = 0; i < 8; ++i) {
    network->push_back(nn::Linear(64, 64));
    network->push_back(nn::LayerNorm(nn::LayerNormOptions({64})));
    network->push_back(nn::GELU());
  }
  network->push_back(nn::Linear(64, 10));
  return network;
}

// peer/overhead_bound_step.py
class OverheadBoundStep : public Worker {
 public:
  nlohmann::json check() override {
    return losses([this] { return step(); }, 5);
  }

  double run() override {
    return seconds_per_call([this] { step(); }, 50);
  }

 private:
  torch::Tensor step() {
    optimizer_.zero_grad();
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, torch::kBFloat16);
      loss = at::cross_entropy_loss(network_->forward(x_), y_);
    }
    scaler_.scale(loss).backward();
    scaler_.step(optimizer_, {.max_norm = 1.0});
    scaler_.update();
    return loss.detach();
  }

  nn::Sequential network_ = make_network();
  torch::Tensor x_ = torch::randn({32, 64});
  torch::Tensor y_ = torch::randint(0, 10, {32});
  optim::AdamW optimizer_{network_->parameters(), {.lr = 1e-3}};
  GradScaler scaler_;
};

std::unique_ptr<Worker> make_overhead_bound_step(
    std::span<const std::string> /*args*/) {
  at::set_num_threads(1);
  torch::manual_seed(0);
  return std::make_unique<OverheadBoundStep>();
}

const Registration kOverheadBoundStep{
    "overhead_bound_step", make_overhead_bound_step};

} // namespace
} // namespace ampkit::bench
