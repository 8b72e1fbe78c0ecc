// A region that goes on computing with the weights of before: the symptom of
// training that is frozen, or of an evaluation that ignores the averages.
#include <ampkit/amp/autocast.h>

#include <functional>
#include <sstream>

#include <ampkit/amp/script_module.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

namespace nn = torch::nn;

using torch::Tensor;

/// A network as a user may have it, and an input.
struct TwoLayers {
  std::string name;
  std::vector<Tensor> parameters;
  Tensor input;
  std::function<Tensor(const Tensor&)> forward;

  Tensor run() const { return forward(input); }
};

template <class Holder>
TwoLayers of_module(
    const std::string& name, Holder module, at::IntArrayRef input) {
  return {
      name,
      module->parameters(),
      torch::randn(input),
      [module](const Tensor& x) mutable { return module->forward(x); }};
}

/// As torch.jit.save() and load() give it.
torch::jit::Module loaded_script() {
  torch::jit::Module made("__torch__.Net");
  made.register_parameter("w", torch::randn({4, 4}).requires_grad_(), false);
  made.register_parameter("b", torch::randn({4}).requires_grad_(), false);
  made.define(
      "def forward(self, x):\n"
      "  return torch.tanh(torch.linear(x, self.w, self.b)) @ self.w\n");
  std::stringstream file;
  made.save(file);
  return torch::jit::load(file);
}

TwoLayers functional(
    const std::string& name,
    at::IntArrayRef weight,
    at::IntArrayRef input,
    const std::function<Tensor(const Tensor& x, const Tensor& w)>& op) {
  const auto w = torch::randn(weight).requires_grad_();
  return {name, {w}, torch::randn(input), [op, w](const Tensor& x) {
            return op(x, w);
          }};
}

std::vector<TwoLayers> networks() {
  torch::manual_seed(1);
  std::vector<TwoLayers> result{
      functional(
          "mm", {4, 4}, {2, 4}, [](auto& x, auto& w) { return x.mm(w); }),
      functional(
          "at::linear",
          {4, 4},
          {2, 4},
          [](auto& x, auto& w) { return at::linear(x, w); }),
      functional(
          "at::conv2d",
          {2, 2, 3, 3},
          {1, 2, 5, 5},
          [](auto& x, auto& w) { return at::conv2d(x, w); }),
      of_module("nn::Linear", nn::Linear(4, 3), {2, 4}),
      of_module("nn::Linear, 3-D input", nn::Linear(4, 3), {2, 2, 4}),
      of_module("nn::Conv1d", nn::Conv1d(2, 3, 3), {1, 2, 6}),
      of_module("nn::Conv2d", nn::Conv2d(2, 3, 3), {1, 2, 5, 5}),
      of_module("nn::Conv3d", nn::Conv3d(2, 3, 2), {1, 2, 3, 3, 3}),
      of_module(
          "nn::ConvTranspose2d", nn::ConvTranspose2d(2, 3, 3), {1, 2, 4, 4}),
      of_module("nn::PReLU", nn::PReLU(), {2, 4}),
      of_module(
          "nn::Sequential",
          nn::Sequential(
              nn::Conv2d(2, 3, 3),
              nn::ReLU(),
              nn::Flatten(),
              nn::Linear(27, 2)),
          {1, 2, 5, 5})};
  nn::LSTM lstm(4, 3);
  result.push_back(
      {"nn::LSTM",
       lstm->parameters(),
       torch::randn({5, 2, 4}),
       [lstm](const Tensor& x) mutable {
         return std::get<0>(lstm->forward(x));
       }});
  nn::Bilinear bilinear(4, 4, 3);
  result.push_back(
      {"nn::Bilinear",
       bilinear->parameters(),
       torch::randn({2, 4}),
       [bilinear](const Tensor& x) mutable {
         return bilinear->forward(x, x);
       }});
  nn::GRUCell cell(4, 3);
  result.push_back(of_module("nn::GRUCell", cell, {2, 4}));
  nn::MultiheadAttention attention(4, 2);
  result.push_back(
      {"nn::MultiheadAttention",
       attention->parameters(),
       torch::randn({5, 2, 4}),
       [attention](const Tensor& x) mutable {
         return std::get<0>(attention->forward(x, x, x));
       }});
  auto script = loaded_script();
  result.push_back(
      {"torch::jit::Module",
       {script.attr("w").toTensor(), script.attr("b").toTensor()},
       torch::randn({2, 4}),
       [script](const Tensor& x) mutable {
         return script.forward({x}).toTensor();
       }});
  const auto adapted = std::make_shared<ScriptModule>(loaded_script());
  result.push_back(
      {"ScriptModule",
       adapted->parameters(),
       torch::randn({2, 4}),
       [adapted](const Tensor& x) { return adapted->forward(x); }});
  return result;
}

/// Something that gives every parameter other values.
struct Change {
  std::string name;
  std::function<void(const TwoLayers&)> apply;
};

void each_under_no_grad(
    const TwoLayers& network, const std::function<void(Tensor&)>& change) {
  const torch::NoGradGuard no_grad;
  for (auto parameter : network.parameters) {
    change(parameter);
  }
}

template <class Optimizer, class Options>
void optimizer_step(const TwoLayers& network, const Options& options) {
  Optimizer optimizer(network.parameters, options);
  network.run().to(torch::kFloat).square().sum().backward();
  optimizer.step();
  optimizer.zero_grad();
}

std::vector<Change> changes() {
  return {
      {"add_",
       [](const TwoLayers& network) {
         each_under_no_grad(network, [](Tensor& p) { p.add_(1); });
       }},
      {"averages swapped in with copy_",
       [](const TwoLayers& network) {
         each_under_no_grad(
             network, [](Tensor& p) { p.copy_(p.clone().mul_(0.5)); });
       }},
      {"averages swapped in with set_data",
       [](const TwoLayers& network) {
         each_under_no_grad(
             network, [](Tensor& p) { p.set_data(p.detach() * 0.5); });
       }},
      {"add_ on detach()",
       [](const TwoLayers& network) {
         each_under_no_grad(network, [](Tensor& p) { p.detach().add_(1); });
       }},
      // Writes to `.data()`, which leaves the version of the weight alone.
      {"step of torch::optim::SGD",
       [](const TwoLayers& network) {
         optimizer_step<torch::optim::SGD>(
             network, torch::optim::SGDOptions(0.5));
       }},
      {"step of torch::optim::AdamW", [](const TwoLayers& network) {
         optimizer_step<torch::optim::AdamW>(
             network, torch::optim::AdamWOptions(0.5));
       }}};
}

/// What the weights of now give, with no cache that could be stale.
Tensor fresh(const TwoLayers& network) {
  Autocast autocast(torch::kCPU, torch::kBFloat16, {.cache_enabled = false});
  return network.run();
}

// Calls `check(network, before, change)` for every pair; `before` is what the
// weights gave in a region that is still in force.
void for_every_network_and_change(
    const std::function<
        void(const TwoLayers&, const std::function<void()>& change)>& check) {
  for (const auto& change : changes()) {
    for (const auto& network : networks()) {
      SCOPED_TRACE(network.name + ", " + change.name);
      check(network, [&] { change.apply(network); });
    }
  }
}

TEST(StaleWeightTest, ChangeInsideARegionIsSeenAtOnce) {
  for_every_network_and_change(
      [](const TwoLayers& network, const auto& change) {
        Autocast autocast(torch::kCPU, torch::kBFloat16);
        const auto before = network.run();
        change();
        const auto after = network.run();
        EXPECT_FALSE(after.equal(before));
        EXPECT_TRUE(after.equal(fresh(network)));
      });
}

// The copies of an evaluation have no gradient that would pass them.
TEST(StaleWeightTest, EvaluationInATrainingRegionSeesEachStep) {
  for (const auto& network : networks()) {
    SCOPED_TRACE(network.name);
    const auto evaluate = [&] {
      const torch::NoGradGuard no_grad;
      return network.run();
    };
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    auto before = evaluate();
    for (int step = 0; step < 3; ++step) {
      optimizer_step<torch::optim::SGD>(network, torch::optim::SGDOptions(0.1));
      const auto after = evaluate();
      EXPECT_FALSE(after.equal(before));
      {
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(after.equal(fresh(network)));
      }
      before = after;
    }
  }
}

TEST(StaleWeightTest, ChangeBetweenTwoRegionsIsSeen) {
  for_every_network_and_change(
      [](const TwoLayers& network, const auto& change) {
        Tensor before;
        {
          Autocast autocast(torch::kCPU, torch::kBFloat16);
          before = network.run();
        }
        change();
        Autocast autocast(torch::kCPU, torch::kBFloat16);
        const auto after = network.run();
        EXPECT_FALSE(after.equal(before));
        EXPECT_TRUE(after.equal(fresh(network)));
      });
}

// The outer region keeps the cache alive between the inner ones.
TEST(StaleWeightTest, ChangeBetweenTwoRegionsInsideAThirdIsSeen) {
  for_every_network_and_change(
      [](const TwoLayers& network, const auto& change) {
        Autocast outer(torch::kCPU, torch::kBFloat16);
        Tensor before;
        {
          Autocast autocast(torch::kCPU, torch::kBFloat16);
          before = network.run();
        }
        change();
        Autocast autocast(torch::kCPU, torch::kBFloat16);
        const auto after = network.run();
        EXPECT_FALSE(after.equal(before));
        EXPECT_TRUE(after.equal(fresh(network)));
      });
}

// Five steps; a region each, or one around all of them.
std::vector<Tensor> trained(const TwoLayers& network, bool one_region) {
  torch::optim::SGD sgd(
      network.parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  std::optional<Autocast> around;
  if (one_region) {
    around.emplace(torch::kCPU, torch::kBFloat16);
  }
  for (int step = 0; step < 5; ++step) {
    sgd.zero_grad();
    Tensor loss;
    {
      Autocast autocast(torch::kCPU, torch::kBFloat16);
      loss = network.run().to(torch::kFloat).square().mean();
    }
    // Not in the region around, where backward would run in other dtypes.
    Autocast off(torch::kCPU, torch::kBFloat16, {.enabled = false});
    loss.backward();
    sgd.step();
  }
  std::vector<Tensor> weights;
  for (const auto& parameter : network.parameters) {
    weights.push_back(parameter.detach().clone());
  }
  return weights;
}

TEST(StaleWeightTest, TrainingInsideOneRegionIsNotFrozen) {
  const auto one = networks();
  const auto many = networks(); // the same seed
  for (size_t i = 0; i < one.size(); ++i) {
    SCOPED_TRACE(one[i].name);
    const auto start = one[i].parameters[0].detach().clone();
    const auto in_one = trained(one[i], true);
    const auto in_many = trained(many[i], false);
    EXPECT_FALSE(in_one[0].equal(start));
    for (size_t p = 0; p < in_one.size(); ++p) {
      EXPECT_TRUE(in_one[p].equal(in_many[p])) << p;
    }
  }
}

// `.data()` has a version counter of its own: without a backward pass before,
// nothing tells that the weight changed.
TEST(StaleWeightTest, ChangeThroughDataIsSeenInTheNextRegion) {
  for (const auto& network : networks()) {
    SCOPED_TRACE(network.name);
    Tensor before;
    {
      Autocast autocast(torch::kCPU, torch::kBFloat16);
      before = network.run();
    }
    for (const auto& parameter : network.parameters) {
      parameter.data().add_(1);
    }
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    const auto after = network.run();
    EXPECT_FALSE(after.equal(before));
    EXPECT_TRUE(after.equal(fresh(network)));
  }
}

} // namespace
} // namespace ampkit
