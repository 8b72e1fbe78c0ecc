#pragma once

#include <memory>

#include <ampkit/amp/grad_scaler.h>
#include <torch/torch.h>

#include "amp/host_value.h"
#include "support/float_limits.h"

namespace ampkit {

/// Whether a test runs the code for the CPU, where all is known at once, or
/// that for devices, where nothing is.
class OnBothPaths : public ::testing::TestWithParam<bool> {
 protected:
  OnBothPaths() {
    if (GetParam()) {
      as_device_ = std::make_unique<TreatCpuAsDevice>();
    }
  }

 private:
  std::unique_ptr<TreatCpuAsDevice> as_device_;
};

inline std::string path_name(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Device" : "Cpu";
}

/// A linear layer [1, 2] with weights {1, 2} under a stock SGD(lr = 1), and a
/// scaler that knows its names. The gradient of `loss(x)` is x.
struct ScaledTraining {
  explicit ScaledTraining(const GradScalerOptions& options = {})
      : scaler(options) {
    torch::NoGradGuard no_grad;
    net->weight.copy_(torch::tensor({{1.0F, 2.0F}}));
    scaler.name_parameters(*net);
  }

  at::Tensor loss(float first, float second) {
    return net->forward(torch::tensor({{first, second}})).sum();
  }

  /// A whole iteration, gradients cleared before it.
  StepResult iterate(float first, float second) {
    sgd.zero_grad();
    scaler.scale(loss(first, second)).backward();
    const StepResult result = scaler.step(sgd);
    scaler.update();
    return result;
  }

  /// The same with a loss that is finite and a gradient that is not.
  StepResult overflow() {
    sgd.zero_grad();
    scaler.scale(loss(1, 1)).backward();
    net->weight.mutable_grad()[0][1] = kInf;
    const StepResult result = scaler.step(sgd);
    scaler.update();
    return result;
  }

  torch::Tensor weight() { return net->weight.detach(); }

  torch::nn::Linear net{torch::nn::LinearOptions(2, 1).bias(false)};
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(1.0)};
  GradScaler scaler;
};

} // namespace ampkit
