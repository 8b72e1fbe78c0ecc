#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

constexpr int64_t kTensors = 10;
constexpr int64_t kSize = 2'500'000;
constexpr double kScale = 65536;
constexpr double kLr = 1e-3;
constexpr double kMaxNorm = 1;

// peer/optimizer_25m.py. What is between backward() and the next forward pass
// is step()'s, which gives the norm of the gradients.
class Optimizer25M : public Worker {
 public:
  explicit Optimizer25M(double gradient_scale) {
    for (int64_t i = 0; i < kTensors; ++i) {
      params_.push_back(torch::randn({kSize}).requires_grad_());
    }
    for (auto& param : params_) {
      gradients_.push_back(torch::randn({kSize}) * (1e-3 * gradient_scale));
      param.mutable_grad() = torch::empty({kSize});
    }
  }

  nlohmann::json check() override {
    const auto before = params_.front().detach().clone();
    nlohmann::json values;
    for (int64_t i = 1; i <= 3; ++i) {
      backward();
      values["gradient norm of step " + std::to_string(i)] = step();
    }
    const auto moved =
        (params_.front().detach() - before).abs().to(torch::kDouble);
    values["mean change of a weight"] = moved.mean().item<double>();
    values["mean square of a change"] = moved.square().mean().item<double>();
    return values;
  }

  double run() override {
    constexpr int64_t kSteps = 5;
    double seconds = 0;
    for (int64_t i = 0; i < kSteps; ++i) {
      backward();
      seconds += seconds_per_call([this] { step(); }, 1);
    }
    return seconds / kSteps;
  }

 protected:
  virtual double step() = 0;

  std::vector<torch::Tensor> params_;

 private:
  // What a backward pass would leave; not timed.
  void backward() {
    for (int64_t i = 0; i < kTensors; ++i) {
      params_[i].mutable_grad().copy_(gradients_[i]);
    }
  }

  std::vector<torch::Tensor> gradients_;
};

class WithAmpkit : public Optimizer25M {
 public:
  WithAmpkit() : Optimizer25M(kScale), optimizer_(params_, {.lr = kLr}) {
    scaler_.scale(torch::ones({}));
  }

 private:
  double step() override {
    const auto result = scaler_.step(optimizer_, {.max_norm = kMaxNorm});
    scaler_.update();
    return result.grad_norm();
  }

  optim::AdamW optimizer_;
  GradScaler scaler_{{.init_scale = kScale, .growth_interval = 1'000'000'000}};
};

// LibTorch has no loss scaling, so that its gradients need no unscaling.
class WithLibTorch : public Optimizer25M {
 public:
  WithLibTorch()
      : Optimizer25M(1), optimizer_(params_, torch::optim::AdamWOptions(kLr)) {}

 private:
  double step() override {
    const double norm = torch::nn::utils::clip_grad_norm_(params_, kMaxNorm);
    optimizer_.step();
    return norm;
  }

  torch::optim::AdamW optimizer_;
};

// optimizer_25m ampkit|libtorch
std::unique_ptr<Worker> make_optimizer_25m(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 1, "optimizer_25m: expected ampkit or libtorch");
  at::set_num_threads(2);
  torch::manual_seed(0);
  if (args.front() == "libtorch") {
    return std::make_unique<WithLibTorch>();
  }
  return std::make_unique<WithAmpkit>();
}

const Registration kOptimizer25M{"optimizer_25m", make_optimizer_25m};

} // namespace
} // namespace ampkit::bench
