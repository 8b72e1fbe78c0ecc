#include <ampkit/optim/torch_state.h>

#include <ampkit/optim/adamw.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::optim {
namespace {

/// A linear layer under an optimizer; each step has its own gradient.
template <class Optimizer>
struct SavedRun {
  torch::nn::Linear module;
  Optimizer optimizer;

  SavedRun(at::ScalarType dtype, typename Optimizer::Options options)
      : module(make(dtype)), optimizer(named(*module), options) {}

  static torch::nn::Linear make(at::ScalarType dtype) {
    torch::manual_seed(5);
    torch::nn::Linear module(5, 3);
    module->to(dtype);
    return module;
  }

  void steps(int first, int end) {
    for (int i = first; i < end; ++i) {
      torch::manual_seed(static_cast<uint64_t>(i));
      for (const auto& p : module->parameters()) {
        p.mutable_grad() = torch::randn(p.sizes()).to(p.scalar_type());
      }
      optimizer.step();
    }
  }
};

/// Six steps, against three, the state by way of Python's form, and three.
template <class Optimizer>
void expect_same_end(
    at::ScalarType dtype, typename Optimizer::Options options) {
  SavedRun<Optimizer> whole(dtype, options);
  whole.steps(0, 6);
  SavedRun<Optimizer> first(dtype, options);
  first.steps(0, 3);
  SavedRun<Optimizer> second(dtype, {.lr = 77});
  load_torch_state_dict(second.optimizer, to_torch_state_dict(first.optimizer));
  EXPECT_EQ(second.optimizer.options().lr, options.lr);
  const torch::NoGradGuard no_grad;
  second.module->weight.copy_(first.module->weight);
  second.module->bias.copy_(first.module->bias);
  second.steps(3, 6);
  EXPECT_TRUE(second.module->weight.equal(whole.module->weight));
  EXPECT_TRUE(second.module->bias.equal(whole.module->bias));
}

TEST(TorchOptimStateTest, RunGoesOnFromPythonsFormToTheLastBit) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    expect_same_end<AdamW>(dtype, {.lr = 0.01, .betas = {0.8, 0.99}});
    expect_same_end<SGD>(dtype, {.lr = 0.01, .momentum = 0.9});
    expect_same_end<SGD>(dtype, {.lr = 0.01});
  }
}

TEST(TorchOptimStateTest, ParametersAreNumberedOverAllGroups) {
  const auto a = torch::ones({2}, torch::requires_grad());
  const auto b = torch::ones({3}, torch::requires_grad());
  const auto c = torch::ones({4}, torch::requires_grad());
  const AdamW optimizer(std::vector<ParamGroup<AdamWOptions>>{
      {.params = {b, a}, .options = {.lr = 0.5}},
      {.params = {c}, .options = {.lr = 0.25}}});
  const auto state = to_torch_state_dict(optimizer);
  const auto& groups = state.at("param_groups").items();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].dict().at("params").items()[1].integer(), 1);
  EXPECT_EQ(groups[1].dict().at("params").items()[0].integer(), 2);
  EXPECT_EQ(groups[1].dict().at("lr").real(), 0.25);
  EXPECT_EQ(groups[1].dict().at("betas").items()[1].real(), 0.999);
  EXPECT_TRUE(state.at("state").dict().empty());
}

io::TorchDict with(
    const io::TorchDict& dict, const io::TorchKey& key, io::TorchValue value) {
  io::TorchDict copy = dict;
  copy.set(key, std::move(value));
  return copy;
}

/// `state` with param_names in its only group.
io::TorchDict with_names(
    const io::TorchDict& state, const std::vector<std::string>& names) {
  io::TorchList list;
  for (const auto& name : names) {
    list.items.emplace_back(name);
  }
  const auto& group = state.at("param_groups").items()[0].dict();
  return with(
      state,
      "param_groups",
      io::TorchList{{with(group, "param_names", std::move(list))}});
}

TEST(TorchOptimStateTest, NamesOfTheFileGoBeforeItsOrder) {
  SavedRun<AdamW> first(at::kFloat, {});
  first.steps(0, 1);
  const auto state = to_torch_state_dict(first.optimizer);
  SavedRun<AdamW> second(at::kFloat, {});
  // Shapes [3, 5] and [3] change places.
  EXPECT_ERROR(
      load_torch_state_dict(
          second.optimizer, with_names(state, {"bias", "weight"})),
      c10::Error,
      "'state.weight.exp_avg' is Float [3]");
  load_torch_state_dict(
      second.optimizer, with_names(state, {"weight", "bias"}));
  // Other names say nothing: by order.
  load_torch_state_dict(second.optimizer, with_names(state, {"a", "b"}));
  EXPECT_EQ(second.optimizer.steps_of(second.module->weight), 1);
}

TEST(TorchOptimStateTest, MastersThatAreMissingAreMadeFromTheParameters) {
  SavedRun<AdamW> first(at::kBFloat16, {});
  first.steps(0, 3);
  auto state = to_torch_state_dict(first.optimizer);
  io::TorchDict bare;
  for (const auto& [number, entries] : state.at("state").dict().entries()) {
    io::TorchDict kept;
    for (const auto& [key, value] : entries.dict().entries()) {
      // Python casts the moments to the parameter's dtype.
      if (key == io::TorchKey("step")) {
        kept.set(key, value);
      } else if (key != io::TorchKey("master")) {
        kept.set(key, value.tensor().to(at::kBFloat16));
      }
    }
    bare.set(number, kept);
  }
  state.set("state", bare);
  SavedRun<AdamW> second(at::kBFloat16, {});
  load_torch_state_dict(second.optimizer, state);
  second.steps(3, 4);
  const auto master = second.optimizer.master(second.module->weight);
  EXPECT_EQ(master.scalar_type(), at::kFloat);
  EXPECT_TRUE(master.to(at::kBFloat16).equal(second.module->weight.detach()));
}

// torch::optim::Adam of C++ loads such a file in silence.
TEST(TorchOptimStateTest, FileOfAnotherModelIsRefusedNamingTheParameter) {
  SavedRun<AdamW> small(at::kFloat, {});
  small.steps(0, 1);
  torch::nn::Linear layer(2, 2);
  AdamW other(named(*layer), {.lr = 0.5});
  EXPECT_ERROR(
      load_torch_state_dict(other, to_torch_state_dict(small.optimizer)),
      c10::Error,
      "nothing was changed",
      "'state.weight.exp_avg' is Float [3, 5]",
      "Float [2, 2]");
  EXPECT_EQ(other.options().lr, 0.5);
  EXPECT_EQ(other.steps_of(layer->weight), 0);
}

TEST(TorchOptimStateTest, AllThatDoesNotFitIsListed) {
  SavedRun<AdamW> world(at::kFloat, {});
  const auto state = to_torch_state_dict(world.optimizer);
  io::TorchDict group = state.at("param_groups").items()[0].dict();
  group.set("lr", "fast");
  group.set("trust", 0.1);
  group.set("betas", io::TorchTuple{{0.9}});
  EXPECT_ERROR(
      load_torch_state_dict(
          world.optimizer, with(state, "param_groups", io::TorchList{{group}})),
      c10::Error,
      "param_groups[0]: 'lr': TorchValue: should be a number",
      "'betas.second' is missing",
      "'trust' is unknown here");
  EXPECT_ERROR(
      load_torch_state_dict(world.optimizer, io::TorchDict()),
      c10::Error,
      "'param_groups'");
}

} // namespace
} // namespace ampkit::optim
