// Saving and loading of optimizers, ema and archives included.

#include <algorithm>
#include <sstream>

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

/// A linear layer of `dtype` under AdamW; each step has its own gradient.
struct StateWorld {
  torch::nn::Linear module;
  AdamW adamw;

  explicit StateWorld(at::ScalarType dtype, AdamWOptions options = {.lr = 0.01})
      : module(make(dtype)), adamw(named(*module), options) {}

  static torch::nn::Linear make(at::ScalarType dtype) {
    torch::manual_seed(5);
    torch::nn::Linear module(5, 3);
    module->to(dtype);
    return module;
  }

  void step(int number) {
    torch::manual_seed(static_cast<uint64_t>(number));
    for (const auto& p : module->parameters()) {
      p.mutable_grad() = torch::randn(p.sizes()).to(p.scalar_type());
    }
    adamw.step();
  }

  void steps(int first, int end) {
    for (int i = first; i < end; ++i) {
      step(i);
    }
  }
};

io::StateDict frozen(const io::StateDict& state) {
  io::StateDict copy;
  for (const auto& [name, value] : state.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    copy.set(
        name,
        tensor != nullptr ? io::StateValue(tensor->detach().clone()) : value);
  }
  return copy;
}

bool same(const io::StateDict& a, const io::StateDict& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (const auto& [name, value] : a.entries()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      if (!tensor->equal(b.tensor(name)) ||
          tensor->scalar_type() != b.tensor(name).scalar_type()) {
        return false;
      }
    } else if (
        !b.contains(name) ||
        io::describe(value) !=
            io::describe(std::ranges::find(
                             b.entries(), name, &io::StateDict::Entry::first)
                             ->second)) {
      return false;
    }
  }
  return true;
}

class OptimizerStateDtypes : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(OptimizerStateDtypes, ResumedRunEqualsTheUninterruptedToTheLastBit) {
  StateWorld whole(GetParam());
  whole.steps(0, 10);
  StateWorld first(GetParam());
  first.steps(0, 6);
  const auto state = frozen(first.adamw.state_dict());
  StateWorld second(GetParam(), {.lr = 0.5});
  second.step(99); // state that must be replaced
  {
    const torch::NoGradGuard no_grad;
    second.module->weight.copy_(first.module->weight);
    second.module->bias.copy_(first.module->bias);
  }
  second.adamw.load_state_dict(state);
  EXPECT_TRUE(same(second.adamw.state_dict(), state));
  EXPECT_EQ(second.adamw.steps_of(second.module->weight), 6);
  EXPECT_EQ(second.adamw.options().lr, 0.01);
  second.steps(6, 10);
  EXPECT_TRUE(second.module->weight.equal(whole.module->weight));
  EXPECT_TRUE(second.module->bias.equal(whole.module->bias));
  EXPECT_TRUE(second.adamw.master(second.module->weight)
                  .equal(whole.adamw.master(whole.module->weight)));
}

TEST_P(OptimizerStateDtypes, ModelMayBeLoadedBeforeOrAfterTheOptimizer) {
  StateWorld first(GetParam());
  first.steps(0, 4);
  const auto state = frozen(first.adamw.state_dict());
  StateWorld second(GetParam());
  second.step(99);
  second.adamw.load_state_dict(state);
  const torch::NoGradGuard no_grad;
  second.module->weight.copy_(first.module->weight);
  second.module->bias.copy_(first.module->bias);
  first.step(4);
  second.step(4);
  EXPECT_TRUE(second.adamw.master(second.module->weight)
                  .equal(first.adamw.master(first.module->weight)));
}

TEST_P(OptimizerStateDtypes, TorchSaveAndLoadCarryEverything) {
  StateWorld first(GetParam());
  first.steps(0, 3);
  std::stringstream stream;
  torch::save(static_cast<torch::optim::Optimizer&>(first.adamw), stream);
  StateWorld second(GetParam(), {.lr = 0.7});
  torch::load(static_cast<torch::optim::Optimizer&>(second.adamw), stream);
  EXPECT_TRUE(same(second.adamw.state_dict(), first.adamw.state_dict()));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    OptimizerStateDtypes,
    ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
    [](const auto& tested) { return std::string(toString(tested.param)); });

TEST(OptimizerStateTest, StepCountsOfLowPrecisionRunsAreNotRounded) {
  StateWorld world(at::kBFloat16);
  world.step(0);
  auto state = frozen(world.adamw.state_dict());
  for (const int64_t steps : {10001, 16777217}) {
    state.set("state.weight.step", steps);
    world.adamw.load_state_dict(state);
    world.step(1);
    EXPECT_EQ(world.adamw.steps_of(world.module->weight), steps + 1);
  }
}

TEST(OptimizerStateTest, MissingMastersAreMadeFromTheParameters) {
  StateWorld world(at::kHalf);
  world.steps(0, 2);
  const auto saved = frozen(world.adamw.state_dict());
  io::StateDict without;
  for (const auto& [name, value] : saved.entries()) {
    if (!name.ends_with(".master")) {
      without.set(name, value);
    }
  }
  world.adamw.load_state_dict(without);
  for (const auto& p : world.module->parameters()) {
    p.mutable_grad() = torch::zeros_like(p);
  }
  world.adamw.set_options({.lr = 0});
  const auto before = world.module->weight.detach().clone();
  world.adamw.step();
  EXPECT_TRUE(world.module->weight.equal(before));
  EXPECT_TRUE(
      world.adamw.master(world.module->weight).equal(before.to(at::kFloat)));
}

TEST(OptimizerStateTest, SgdKeepsItsBuffersAndNoneWithoutMomentum) {
  const auto weight = torch::ones({3}).requires_grad_();
  weight.mutable_grad() = torch::full({3}, 2.0F);
  SGD plain({weight});
  plain.step();
  EXPECT_FALSE(plain.state_dict().contains("state.0.momentum_buffer"));
  plain.load_state_dict(frozen(plain.state_dict()));
  SGD sgd({weight}, {.momentum = 0.9});
  sgd.step();
  const auto state = frozen(sgd.state_dict());
  EXPECT_TRUE(state.tensor("state.0.momentum_buffer").equal(weight.grad()));
  SGD other({weight}, {.momentum = 0.1});
  other.load_state_dict(state);
  EXPECT_EQ(other.options().momentum, 0.9);
  EXPECT_TRUE(same(other.state_dict(), state));
}

/// Loading `state` fails with all `texts` and leaves `world` as it is.
void expect_refused(
    StateWorld& world,
    const io::StateDict& state,
    const std::vector<std::string>& texts) {
  const auto before = frozen(world.adamw.state_dict());
  try {
    world.adamw.load_state_dict(state);
    ADD_FAILURE() << "accepted";
  } catch (const c10::Error& error) {
    for (const auto& text : texts) {
      EXPECT_THAT(error.msg(), ::testing::HasSubstr(text));
    }
  }
  EXPECT_TRUE(same(world.adamw.state_dict(), before));
}

TEST(OptimizerStateErrors, AnotherModelsStateIsRefusedByNameAndShape) {
  torch::nn::Linear other(2, 2);
  AdamW adamw(named(*other));
  StateWorld world(at::kFloat);
  world.step(0);
  expect_refused(
      world,
      adamw.state_dict(),
      {"'weight' was Float [2, 2]", "is Float [3, 5]", "'bias'"});
  AdamW renamed(NamedParameters{{other->weight, other->bias}, {"a", "b"}});
  expect_refused(
      world,
      renamed.state_dict(),
      {"'group.0.parameter.weight' is missing", "'group.0.parameter.a'"});
}

TEST(OptimizerStateErrors, AnotherKindOrNumberOfGroupsIsRefused) {
  StateWorld world(at::kFloat);
  SGD sgd(named(*world.module));
  expect_refused(world, sgd.state_dict(), {"it is of SGD, not of AdamW"});
  AdamW two({
      ParamGroup{{world.module->weight}, AdamWOptions{}, "", {"weight"}},
      ParamGroup{{world.module->bias}, AdamWOptions{}, "", {"bias"}},
  });
  expect_refused(world, two.state_dict(), {"2 parameter groups"});
}

TEST(OptimizerStateErrors, MomentsOfAnotherDtypeOrMissingOnesAreRefused) {
  StateWorld world(at::kBFloat16);
  world.step(0);
  auto state = frozen(world.adamw.state_dict());
  state.set(
      "state.bias.exp_avg_sq",
      state.tensor("state.bias.exp_avg_sq").to(at::kBFloat16));
  expect_refused(
      world, state, {"'state.bias.exp_avg_sq' is BFloat16 [3]", "Float [3]"});
  io::StateDict partial;
  const io::StateDict present = world.adamw.state_dict();
  for (const auto& [name, value] : present.entries()) {
    if (name != "state.weight.exp_avg_sq" && name != "group.0.eps") {
      partial.set(name, value);
    }
  }
  expect_refused(world, partial, {"'group.0.eps' is missing"});
  partial.set("group.0.eps", 1e-8);
  expect_refused(world, partial, {"'state.weight' lacks moments"});
}

TEST(OptimizerStateErrors, StateOfParametersInAnotherDtypeIsRefused) {
  StateWorld bf16(at::kBFloat16);
  bf16.step(0);
  StateWorld fp32(at::kFloat);
  expect_refused(
      fp32,
      bf16.adamw.state_dict(),
      {"'weight' was BFloat16 [3, 5]", "is Float [3, 5]"});
}

TEST(OptimizerStateErrors, UnknownEntriesAndBadOptionsAreRefused) {
  StateWorld world(at::kFloat);
  world.step(0);
  auto state = frozen(world.adamw.state_dict());
  state.set("state.weight.momentum_buffer", torch::ones({3, 5}));
  expect_refused(world, state, {"momentum_buffer' is unknown"});
  auto negative = frozen(world.adamw.state_dict());
  negative.set("group.0.lr", -1.0);
  expect_refused(world, negative, {"lr", "-1"});
}

TEST(OptimizerStateErrors, ArchivesOfTorchOptimizersAreRefused) {
  StateWorld world(at::kFloat);
  torch::optim::AdamW stock(
      world.module->parameters(), torch::optim::AdamWOptions(1e-3));
  std::stringstream stream;
  torch::save(static_cast<torch::optim::Optimizer&>(stock), stream);
  EXPECT_ERROR(
      torch::load(static_cast<torch::optim::Optimizer&>(world.adamw), stream),
      c10::Error,
      "AdamW::load",
      "not written by an ampkit optimizer");
}

} // namespace
} // namespace ampkit::optim
