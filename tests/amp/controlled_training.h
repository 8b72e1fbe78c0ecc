#pragma once

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/precision_controller.h>
#include <torch/torch.h>

namespace ampkit {

/// first -> norm -> relu -> second -> relu -> head. What `first` puts out may
/// be of any size: `norm` brings it back.
struct ControlledNet : torch::nn::Module {
  ControlledNet() {
    first = register_module("first", torch::nn::Linear(32, 64));
    norm = register_module(
        "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})));
    second = register_module("second", torch::nn::Linear(64, 64));
    head = register_module("head", torch::nn::Linear(64, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto hidden = torch::relu(norm->forward(first->forward(x)));
    return head->forward(torch::relu(second->forward(hidden)));
  }
  torch::nn::Linear first{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear second{nullptr};
  torch::nn::Linear head{nullptr};
};

inline void multiply(const at::Tensor& tensor, double factor) {
  const torch::NoGradGuard no_grad;
  tensor.mul_(factor);
}

/// Watches every step; moves after two bad ones, back after three clean ones.
inline PrecisionControllerOptions quick_options() {
  return {.sample_interval = 1, .fail_window = 2, .clean_window = 3};
}

/// An fp16 training of any net with one input, on batches of fixed seed.
template <class Net>
struct ControlledTraining {
  explicit ControlledTraining(
      const PrecisionControllerOptions& options = quick_options(),
      const GradScalerOptions& scaling = {})
      : net((torch::manual_seed(1), std::make_shared<Net>())),
        controller(std::make_unique<PrecisionController>(*net, options)),
        optimizer(net->parameters(), torch::optim::SGDOptions(1e-3)),
        scaler(scaling) {}

  at::Tensor loss(const at::Tensor& x) {
    const Autocast autocast(
        torch::kCPU,
        torch::kHalf,
        {.ops = ops, .modules = controller->modules()});
    const auto y = net->forward(x);
    return torch::mse_loss(y.to(torch::kFloat), torch::ones({16, 8})) *
           loss_factor;
  }

  /// Returns whether the optimizer stepped.
  bool step() {
    optimizer.zero_grad();
    scaler.scale(loss(batch)).backward();
    const auto result = scaler.step(optimizer);
    scaler.update();
    controller->update(result);
    return result.stepped();
  }

  int steps(int count) {
    int taken = 0;
    for (int i = 0; i < count; ++i) {
      taken += static_cast<int>(step());
    }
    return taken;
  }

  /// Plants in weights then stay as they are.
  void freeze() { optimizer.param_groups()[0].options().set_lr(0); }

  std::vector<std::string> moved() const {
    std::vector<std::string> result;
    for (const PrecisionMove& move : controller->moves()) {
      result.push_back(
          move.module + (move.to == torch::kFloat ? " up" : " down"));
    }
    return result;
  }

  std::shared_ptr<Net> net;
  std::unique_ptr<PrecisionController> controller;
  torch::optim::SGD optimizer;
  GradScaler scaler;
  std::optional<OpPolicy> ops;
  at::Tensor batch = torch::randn({16, 32});
  double loss_factor = 1;
};

} // namespace ampkit
