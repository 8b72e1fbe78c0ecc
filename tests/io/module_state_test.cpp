#include <ampkit/io/module_state.h>

#include <limits>

#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit::io {
namespace {

/// A Sequential cannot hold another one in C++, but a module named like it.
struct InnerImpl : torch::nn::Module {
  InnerImpl() {
    linear = register_module(
        "0", torch::nn::Linear(torch::nn::LinearOptions(4, 2).bias(false)));
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return linear->forward(input);
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Inner);

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(
      torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), Inner());
}

std::vector<std::string> names(const StateDict& state) {
  std::vector<std::string> result;
  for (const auto& entry : state.entries()) {
    result.push_back(entry.first);
  }
  return result;
}

StateDict frozen(const torch::nn::Module& module) {
  const StateDict state = module_state(module);
  StateDict copy;
  for (const auto& [name, value] : state.entries()) {
    copy.set(name, std::get<at::Tensor>(value).clone());
  }
  return copy;
}

void expect_unchanged(
    const torch::nn::Module& module, const StateDict& before) {
  const StateDict now = module_state(module);
  ASSERT_EQ(names(now), names(before));
  for (const auto& name : names(before)) {
    EXPECT_TRUE(now.tensor(name).equal(before.tensor(name))) << name;
  }
}

/// Two Linears that share one weight, as an embedding and its output do.
struct TiedParameters : torch::nn::Module {
  TiedParameters() {
    weight = register_parameter("weight", torch::ones({2, 2}));
    register_parameter("output", weight);
  }
  torch::Tensor weight;
};

TEST(ModuleStateTest, NamesAndOrderAreThoseOfPython) {
  const auto net = small_net();
  EXPECT_EQ(
      names(module_state(*net)),
      (std::vector<std::string>{
          "0.weight",
          "0.bias",
          "1.weight",
          "1.bias",
          "1.running_mean",
          "1.running_var",
          "1.num_batches_tracked",
          "2.0.weight"}));
}

TEST(ModuleStateTest, SharesMemoryAndRequiresNoGradient) {
  torch::nn::Linear layer(2, 2);
  const StateDict state = module_state(*layer);
  EXPECT_EQ(state.tensor("weight").data_ptr(), layer->weight.data_ptr());
  EXPECT_FALSE(state.tensor("weight").requires_grad());
}

TEST(ModuleStateTest, LoadCopiesIntoTheStorageThatIsThere) {
  torch::manual_seed(0);
  const auto source = small_net();
  auto target = small_net();
  const StateDict before = module_state(*target);
  const auto weight = target->parameters().front();
  const auto version = weight._version();
  load_module_state(*target, module_state(*source));
  for (const auto& name : names(before)) {
    EXPECT_TRUE(before.tensor(name).equal(module_state(*source).tensor(name)))
        << name;
  }
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_TRUE(weight.is_leaf());
  // Caches of casted weights look at the version.
  EXPECT_GT(weight._version(), version);
}

TEST(ModuleStateTest, AllThatDoesNotFitIsListedAndNothingIsLoaded) {
  auto net = small_net();
  const StateDict before = frozen(*net);
  StateDict state;
  state.set("0.weight", torch::zeros({4, 3}));
  state.set("0.bias", torch::zeros({5}));
  state.set("1.weight", torch::zeros({4}, torch::kHalf));
  state.set("1.bias", 3);
  state.set("extra.weight", torch::zeros({1}));
  EXPECT_ERROR(
      load_module_state(*net, state),
      c10::Error,
      "nothing was loaded",
      "mismatched: 0.bias is tensor Float [4], the state has tensor Float [5]",
      "mismatched: 1.weight is tensor Float [4], the state has tensor Half",
      "mismatched: 1.bias is tensor Float [4], the state has integer 3",
      "missing: 1.running_mean",
      "missing: 1.num_batches_tracked, tensor Long []",
      "missing: 2.0.weight",
      "unexpected: extra.weight");
  expect_unchanged(*net, before);
}

TEST(ModuleStateTest, NotStrictStillRefusesMismatches) {
  torch::nn::Linear layer(3, 4);
  const StateDict before = frozen(*layer);
  StateDict state;
  state.set("other", torch::zeros({1}));
  state.set("bias", torch::full({4}, 2.0));
  load_module_state(*layer, state, {.strict = false});
  EXPECT_TRUE(layer->bias.equal(torch::full({4}, 2.0)));
  EXPECT_TRUE(layer->weight.equal(before.tensor("weight")));
  state.set("weight", torch::zeros({3, 4}));
  EXPECT_ERROR(
      load_module_state(*layer, state, {.strict = false}),
      c10::Error,
      "mismatched: weight");
}

TEST(ModuleStateTest, ConvertsFloatingDtypesOnlyWhenAsked) {
  torch::nn::Linear layer(2, 2);
  layer->to(torch::kHalf);
  StateDict state;
  state.set("weight", torch::full({2, 2}, 0.5));
  state.set("bias", torch::zeros({2}));
  EXPECT_ERROR(load_module_state(*layer, state), c10::Error, "Half", "Float");
  load_module_state(*layer, state, {.convert_dtype = true});
  EXPECT_EQ(layer->weight.scalar_type(), torch::kHalf);
  EXPECT_TRUE(layer->weight.equal(torch::full({2, 2}, 0.5, torch::kHalf)));
  state.set("bias", torch::zeros({2}, torch::kLong));
  EXPECT_ERROR(
      load_module_state(*layer, state, {.convert_dtype = true}),
      c10::Error,
      "mismatched: bias",
      "Long");
}

TEST(ModuleStateTest, OneNameOfATiedParameterIsEnough) {
  TiedParameters module;
  StateDict state;
  state.set("output", torch::full({2, 2}, 3.0));
  load_module_state(module, state);
  EXPECT_TRUE(module.weight.equal(torch::full({2, 2}, 3.0)));
  EXPECT_EQ(
      names(module_state(module)),
      (std::vector<std::string>{"weight", "output"}));
  load_module_state(module, module_state(module));
}

TEST(ModuleStateTest, NamesOfATiedParameterMustAgree) {
  TiedParameters module;
  const auto nan =
      torch::full({2, 2}, std::numeric_limits<double>::quiet_NaN());
  StateDict state;
  state.set("weight", nan);
  state.set("output", nan.clone());
  load_module_state(module, state);
  EXPECT_TRUE(module.weight.isnan().all().item<bool>());
  state.set("output", torch::zeros({2, 2}));
  EXPECT_ERROR(
      load_module_state(module, state),
      c10::Error,
      "weight",
      "output",
      "one tensor");
  EXPECT_TRUE(module.weight.isnan().all().item<bool>());
}

TEST(ModuleStateTest, LoadsFromAndIntoTensorsThatAreNotContiguous) {
  torch::nn::Linear layer(2, 3);
  const auto memory = torch::zeros({2, 3});
  layer->weight.set_data(memory.t());
  const auto values = torch::arange(6.0).view({2, 3}).t();
  StateDict state;
  state.set("weight", values);
  state.set("bias", torch::ones({1}).expand({3}));
  load_module_state(*layer, state);
  EXPECT_TRUE(layer->weight.equal(values));
  EXPECT_TRUE(memory.equal(values.t()));
  EXPECT_TRUE(layer->bias.equal(torch::ones({3})));
}

TEST(ModuleStateTest, RenamesWhileLoading) {
  torch::nn::Linear layer(2, 3);
  StateDict state;
  state.set("module.kernel", torch::full({3, 2}, 2.0));
  state.set("module.bias", torch::full({3}, 4.0));
  const LoadModuleStateOptions options{
      .rename = replace_patterns({{"^module\\.", ""}, {"^kernel$", "weight"}})};
  load_module_state(*layer, state, options);
  EXPECT_EQ(layer->weight.sum().item<float>(), 12);
}

TEST(ModuleStateTest, PrefixThatIsTheOnlyDifferenceIsPointedOut) {
  torch::nn::Linear layer(2, 3);
  StateDict state;
  state.set_all("module", module_state(*layer));
  EXPECT_ERROR(
      load_module_state(*layer, state),
      c10::Error,
      R"(replace_prefixes({{"module.", ""}}))");
  torch::nn::Sequential wrapped(layer);
  StateDict bare = module_state(*layer);
  EXPECT_ERROR(
      load_module_state(*wrapped, bare),
      c10::Error,
      R"(replace_prefixes({{"", "0."}}))");
}

} // namespace
} // namespace ampkit::io
