// Two losses, each under a scaler of its own; test_loss_scales.py has the same.

#include <limits>
#include <memory>

#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

using nlohmann::json;
using Tensors = std::vector<torch::Tensor>;

class TwoLosses {
 public:
  explicit TwoLosses(const json& task)
      : own_(task.at("optimizer") == "ampkit"),
        factors_{task.at("factors")[0], task.at("factors")[1]} {
    GradScalerOptions options{
        .growth_interval = task.at("growth_interval"),
        .torch_exact = task.at("torch_exact")};
    if (!options.torch_exact) {
      // torch.amp.GradScaler has no floor.
      options.min_scale = std::numeric_limits<float>::min();
    }
    scalers_.emplace_back(options);
    scalers_.emplace_back(options);
  }

  json run(const std::string& how, int64_t iterations) {
    json trace = json::array();
    for (int64_t i = 0; i < iterations; ++i) {
      if (how == "summed") {
        one_step_of_both();
      } else {
        const bool shared = how == "shared";
        one_step(0, shared ? Tensors{shared_, heads_[0]} : Tensors{heads_[0]});
        one_step(1, shared ? Tensors{shared_, heads_[1]} : Tensors{heads_[1]});
      }
      const auto weights = torch::cat({shared_, heads_[0], heads_[1]});
      const auto* data = weights.const_data_ptr<float>();
      trace.push_back(
          {{"scales", {scalers_[0].get_scale(), scalers_[1].get_scale()}},
           {"weights", std::vector<double>(data, data + weights.numel())}});
    }
    return trace;
  }

 private:
  // FP16, so that the scale decides whether its gradients overflow.
  torch::Tensor loss(size_t i) const {
    const auto head = heads_[i].to(torch::kHalf);
    const auto product = shared_.to(torch::kHalf) * head * head;
    return product.to(torch::kFloat).sum() * factors_[i];
  }

  torch::optim::Optimizer& optimizer(size_t i, const Tensors& parameters) {
    if (!optimizers_[i]) {
      if (own_) {
        optimizers_[i] = std::make_unique<optim::SGD>(
            parameters, optim::SGDOptions{.lr = kLr, .momentum = 0.5});
      } else {
        optimizers_[i] = std::make_unique<torch::optim::SGD>(
            parameters, torch::optim::SGDOptions(kLr).momentum(0.5));
      }
    }
    return *optimizers_[i];
  }

  void clear_gradients() {
    for (const auto& tensor : {shared_, heads_[0], heads_[1]}) {
      tensor.mutable_grad().reset();
    }
  }

  void one_step(size_t i, const Tensors& parameters) {
    clear_gradients();
    scalers_[i].scale(loss(i)).backward();
    scalers_[i].step(optimizer(i, parameters));
    scalers_[i].update();
  }

  // Each loss is unscaled by its own scaler; the sum is stepped under one that
  // only checks.
  void one_step_of_both() {
    const Tensors parameters{shared_, heads_[0], heads_[1]};
    auto& sgd = optimizer(0, parameters);
    Tensors sums(parameters.size());
    for (size_t i = 0; i < 2; ++i) {
      clear_gradients();
      scalers_[i].scale(loss(i)).backward();
      scalers_[i].unscale_(sgd);
      scalers_[i].update();
      for (size_t p = 0; p < parameters.size(); ++p) {
        const auto& grad = parameters[p].grad();
        if (grad.defined()) {
          sums[p] = sums[p].defined() ? sums[p] + grad : grad;
        }
      }
    }
    for (size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].mutable_grad() = sums[p];
    }
    check_.step(sgd);
    check_.update();
  }

  static constexpr double kLr = 0x1p-16;

  bool own_;
  double factors_[2];
  torch::Tensor shared_ = torch::tensor({1.0F, 0.5F, 2.0F}).requires_grad_();
  torch::Tensor heads_[2] = {
      torch::tensor({0.5F, 1.0F, 0.25F}).requires_grad_(),
      torch::tensor({1.0F, 0.75F, 0.5F}).requires_grad_()};
  std::unique_ptr<torch::optim::Optimizer> optimizers_[2];
  std::vector<GradScaler> scalers_;
  GradScaler check_{{.enabled = false, .check_without_scaling = true}};
};

// args: tasks, file for their traces
void run_loss_scales(std::span<const std::string> args) {
  json traces = json::array();
  for (const json& task : read_json(args[0])) {
    traces.push_back(
        TwoLosses(task).run(task.at("how"), task.at("iterations")));
  }
  write_json(args[1], traces);
}

const Command kLossScales{"loss_scales", run_loss_scales};

} // namespace
} // namespace ampkit::oracle
