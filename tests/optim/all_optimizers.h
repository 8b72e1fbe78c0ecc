#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <ampkit/io/state_dict.h>
#include <ampkit/optim/fused_optimizer.h>
#include <gtest/gtest.h>

namespace ampkit::optim {

/// One of ampkit's optimizers with a learning rate of 0.01 and options under
/// which it keeps all the state that it can have.
struct OptimizerCase {
  std::string name;
  std::function<std::unique_ptr<FusedOptimizer>(NamedParameters, Kernel)> make;
};

/// Every optimizer there is. Muon takes parameters of two dimensions only, and
/// the stock kernel where its own is asked for.
const std::vector<OptimizerCase>& all_optimizers();

std::ostream& operator<<(std::ostream& out, const OptimizerCase& tested);

/// Two named parameters of two dimensions in one dtype under one optimizer;
/// each numbered step has its own gradients.
struct OptimizerWorld {
  NamedParameters parameters;
  std::unique_ptr<FusedOptimizer> optimizer;

  OptimizerWorld(
      const OptimizerCase& tested,
      at::ScalarType dtype,
      Kernel kernel = Kernel::automatic);

  void set_gradients(int number);
  void step(int number);
  void set_lr(double lr);

  /// Copies of weights, masters and state.
  std::vector<at::Tensor> weights() const;
  std::vector<at::Tensor> masters() const;
  io::StateDict state() const;

  /// Weights and state are those of `other` from now on.
  void take_over(const OptimizerWorld& other);
};

bool same_bits(
    const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);
bool same_bits(const io::StateDict& a, const io::StateDict& b);

} // namespace ampkit::optim
