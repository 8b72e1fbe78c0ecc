#include "optim/all_optimizers.h"

#include <algorithm>
#include <utility>
#include <variant>

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

namespace ampkit::optim {
namespace {

constexpr double kLr = 0.01;

template <class Optimizer>
OptimizerCase make_case(const char* name, typename Optimizer::Options options) {
  options.lr = kLr;
  return {name, [options](NamedParameters parameters, Kernel kernel) mutable {
            options.kernel =
                std::is_same_v<Optimizer, Muon> && kernel == Kernel::highway
                    ? Kernel::stock
                    : kernel;
            return std::make_unique<Optimizer>(std::move(parameters), options);
          }};
}

} // namespace

const std::vector<OptimizerCase>& all_optimizers() {
  static const std::vector<OptimizerCase> all{
      make_case<Adafactor>("Adafactor", {.weight_decay = 0.01}),
      make_case<Adagrad>("Adagrad", {.lr_decay = 0.01, .weight_decay = 0.01}),
      make_case<Adam>("Adam", {.weight_decay = 0.01, .amsgrad = true}),
      make_case<AdamW>("AdamW", {.amsgrad = true}),
      make_case<LAMB>("LAMB", {}),
      make_case<Lion>("Lion", {.weight_decay = 0.01}),
      make_case<Muon>("Muon", {}),
      make_case<RMSprop>(
          "RMSprop",
          // eps: the estimate of a variance may be a little below 0.
          {.eps = 1e-3, .momentum = 0.5, .centered = true}),
      make_case<SGD>(
          "SGD", {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true})};
  return all;
}

std::ostream& operator<<(std::ostream& out, const OptimizerCase& tested) {
  return out << tested.name;
}

OptimizerWorld::OptimizerWorld(
    const OptimizerCase& tested, at::ScalarType dtype, Kernel kernel) {
  torch::manual_seed(5);
  for (const char* name : {"layer.weight", "head.weight"}) {
    // One row and column more than vectors have lanes.
    const int64_t rows = parameters.names.empty() ? 5 : 9;
    parameters.params.push_back(
        torch::randn({rows, 19}).to(dtype).requires_grad_());
    parameters.names.emplace_back(name);
  }
  optimizer = tested.make(parameters, kernel);
}

void OptimizerWorld::set_gradients(int number) {
  torch::manual_seed(static_cast<uint64_t>(number));
  for (const at::Tensor& p : parameters.params) {
    p.mutable_grad() = torch::randn(p.sizes()).to(p.scalar_type());
  }
}

void OptimizerWorld::step(int number) {
  set_gradients(number);
  optimizer->step();
}

void OptimizerWorld::set_lr(double lr) {
  optimizer->param_groups()[0].options().set_lr(lr);
}

std::vector<at::Tensor> OptimizerWorld::weights() const {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& p : parameters.params) {
    copies.push_back(p.detach().clone());
  }
  return copies;
}

std::vector<at::Tensor> OptimizerWorld::masters() const {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& p : parameters.params) {
    copies.push_back(optimizer->master(p).detach().clone());
  }
  return copies;
}

io::StateDict OptimizerWorld::state() const {
  io::StateDict copy;
  const io::StateDict shared = optimizer->state_dict();
  for (const auto& [name, value] : shared.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    copy.set(
        name,
        tensor != nullptr ? io::StateValue(tensor->detach().clone()) : value);
  }
  return copy;
}

void OptimizerWorld::take_over(const OptimizerWorld& other) {
  const torch::NoGradGuard no_grad;
  const auto theirs = other.weights();
  for (size_t i = 0; i < theirs.size(); ++i) {
    parameters.params[i].copy_(theirs[i]);
  }
  optimizer->load_state_dict(other.state());
}

bool same_bits(
    const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.scalar_type() == y.scalar_type() && x.equal(y);
  });
}

bool same_bits(const io::StateDict& a, const io::StateDict& b) {
  return std::ranges::equal(
      a.entries(), b.entries(), [](const auto& x, const auto& y) {
        const auto* tensor = std::get_if<at::Tensor>(&x.second);
        const auto* other = std::get_if<at::Tensor>(&y.second);
        if (tensor == nullptr || other == nullptr) {
          return x.first == y.first &&
                 io::describe(x.second) == io::describe(y.second);
        }
        return x.first == y.first &&
               tensor->scalar_type() == other->scalar_type() &&
               tensor->equal(*other);
      });
}

} // namespace ampkit::optim
