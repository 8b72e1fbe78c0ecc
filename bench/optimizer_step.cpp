#include <map>
#include <optional>

#include <ampkit/amp/grad_scaler.h>
#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
#include <ampkit/optim/muon.h>
#include <ampkit/optim/rmsprop.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

using optim::FusedOptimizer;
using Parameters = std::vector<at::Tensor>;
using Make = std::unique_ptr<FusedOptimizer> (*)(const Parameters&);

constexpr double kLossScale = 65536;

template <class Optimizer>
std::unique_ptr<FusedOptimizer> make(const Parameters& parameters) {
  return std::make_unique<Optimizer>(
      parameters, typename Optimizer::Options{.lr = 1e-3});
}

std::unique_ptr<FusedOptimizer> make_sgd(const Parameters& parameters) {
  return std::make_unique<optim::SGD>(
      parameters, optim::SGDOptions{.lr = 1e-3, .momentum = 0.9});
}

const std::map<std::string, Make>& makers() {
  static const std::map<std::string, Make> all{
      {"adafactor", make<optim::Adafactor>},
      {"adagrad", make<optim::Adagrad>},
      {"adam", make<optim::Adam>},
      {"adamw", make<optim::AdamW>},
      {"lamb", make<optim::LAMB>},
      {"lion", make<optim::Lion>},
      {"muon", make<optim::Muon>},
      {"rmsprop", make<optim::RMSprop>},
      {"sgd", make_sgd}};
  return all;
}

/// How far the first matrix is from where it began.
nlohmann::json moved(const at::Tensor& before, const at::Tensor& now) {
  const auto change = (now.detach().to(at::kDouble) - before).abs();
  return {
      {"mean change of a weight", change.mean().item<double>()},
      {"mean square of a change", change.square().mean().item<double>()}};
}

// peer/optimizer_step.py: step() alone, on fp32 parameters.
class OptimizerStep : public Worker {
 public:
  explicit OptimizerStep(const std::string& name) {
    // Muon's products of matrices outweigh everything else.
    const bool muon = name == "muon";
    for (int i = 0; i < (muon ? 8 : 10); ++i) {
      const auto shape = muon ? std::vector<int64_t>{256, 256}
                              : std::vector<int64_t>{1000, 2500};
      parameters_.push_back(torch::randn(shape).requires_grad_());
    }
    for (auto& parameter : parameters_) {
      parameter.mutable_grad() = torch::randn(parameter.sizes()) * 1e-2;
    }
    optimizer_ = makers().at(name)(parameters_);
    steps_ = muon ? 1 : 5;
  }

  nlohmann::json check() override {
    const auto before = parameters_[0].detach().to(at::kDouble).clone();
    for (int step = 0; step < 3; ++step) {
      optimizer_->step();
    }
    return moved(before, parameters_[0]);
  }

  double run() override {
    return seconds_per_call([this] { optimizer_->step(); }, steps_);
  }

 private:
  Parameters parameters_;
  std::unique_ptr<FusedOptimizer> optimizer_;
  int64_t steps_ = 0; // of a repetition
};

// peer/master_step.py: all that is between a backward pass and the next forward
// pass in 16 bits.
class MasterStep : public Worker {
 public:
  MasterStep() {
    for (int i = 0; i < 10; ++i) {
      parameters_.push_back(
          torch::randn({1000, 2500}).to(at::kHalf).requires_grad_());
    }
    for (auto& parameter : parameters_) {
      parameter.mutable_grad() =
          (torch::randn(parameter.sizes()) * 10).to(at::kHalf);
    }
    optimizer_.emplace(parameters_, optim::AdamWOptions{.lr = 1e-3});
    scaler_.scale(torch::ones({}));
  }

  nlohmann::json check() override {
    const auto before = parameters_[0].detach().to(at::kDouble).clone();
    for (int i = 0; i < 3; ++i) {
      step();
    }
    auto values = moved(before, optimizer_->master(parameters_[0]));
    values["gradient norm"] = step().grad_norm();
    return values;
  }

  double run() override {
    return seconds_per_call([this] { step(); }, 5);
  }

 private:
  StepResult step() {
    const auto result = scaler_.step(*optimizer_, {.max_norm = 1.0});
    scaler_.update();
    return result;
  }

  Parameters parameters_;
  std::optional<optim::AdamW> optimizer_;
  GradScaler scaler_{
      {.init_scale = kLossScale, .growth_interval = 1'000'000'000}};
};

void prepare() {
  at::set_num_threads(2);
  torch::manual_seed(0);
}

// optimizer_step NAME
std::unique_ptr<Worker> make_optimizer_step(std::span<const std::string> args) {
  TORCH_CHECK(
      args.size() == 1 && makers().contains(args.front()),
      "optimizer_step: expected the name of an optimizer, such as adamw");
  prepare();
  return std::make_unique<OptimizerStep>(args.front());
}

std::unique_ptr<Worker> make_master_step(std::span<const std::string>) {
  prepare();
  return std::make_unique<MasterStep>();
}

const Registration kOptimizerStep{"optimizer_step", make_optimizer_step};
const Registration kMasterStep{"master_step", make_master_step};

} // namespace
} // namespace ampkit::bench
