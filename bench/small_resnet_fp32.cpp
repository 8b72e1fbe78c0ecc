#include <ampkit/optim/sgd.h>
#include <ampkit/zoo/models/model.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

// peer/small_resnet_fp32.py
class SmallResNetFp32 : public Worker {
 public:
  nlohmann::json check() override {
    return losses([this] { return step(); }, 5);
  }

  double run() override {
    return seconds_per_call([this] { step(); }, 5);
  }

 private:
  torch::Tensor step() {
    optimizer_.zero_grad();
    const auto loss = at::cross_entropy_loss(model_.forward(x_), y_);
    loss.backward();
    optimizer_.step();
    return loss.detach();
  }

  zoo::Model model_ = zoo::make_model(
      {.name = "resnet_small", .in_channels = 1, .num_classes = 10});
  torch::Tensor x_ = torch::randn({64, 1, 28, 28});
  torch::Tensor y_ = torch::randint(0, 10, {64});
  optim::SGD optimizer_{
      model_.module->parameters(),
      {.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4}};
};

std::unique_ptr<Worker> make_small_resnet_fp32(
    std::span<const std::string> /*args*/) {
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<SmallResNetFp32>();
}

const Registration kSmallResNetFp32{
    "small_resnet_fp32", make_small_resnet_fp32};

} // namespace
} // namespace ampkit::bench
