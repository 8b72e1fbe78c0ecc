// Against Python, with files of torch.jit.save(): tests/oracle/
// test_script_module.py.
#include <ampkit/amp/script_module.h>

#include <filesystem>

#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/cast_parameters.h>
#include <ampkit/io/module_state.h>

#include "support/errors.h"

namespace ampkit {
namespace {

using torch::jit::Module;

/// What scripting a Linear gives.
Module script_linear(const torch::nn::Linear& source) {
  Module module("__torch__.torch.nn.modules.linear.Linear");
  const auto copy = [](const torch::Tensor& tensor) {
    return tensor.detach().clone().requires_grad_();
  };
  module.register_parameter("weight", copy(source->weight), false);
  module.register_parameter("bias", copy(source->bias), false);
  module.define(
      "def forward(self, x):\n"
      "  return torch.linear(x, self.weight, self.bias)\n");
  return module;
}

/// A linear layer, twice under different names with one weight, and buffers.
Module script_net(const torch::nn::Linear& source) {
  Module net("__torch__.Net");
  const auto linear = script_linear(source);
  Module tied("__torch__.torch.nn.modules.linear.___torch_mangle_1.Linear");
  tied.register_parameter("weight", linear.attr("weight").toTensor(), false);
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_buffer("steps", torch::full({}, 2048, torch::kLong));
  net.register_buffer("mean", torch::zeros({4}));
  net.register_module("first", linear);
  net.register_module("last", tied);
  net.define(R"(
def forward(self, x):
  y = torch.relu(self.first.forward(x))
  if self.training:
    self.steps = self.steps + 1
    self.mean.mul_(0.5).add_(0.5 * y.detach().float().mean(0))
  return torch.linear(y, self.last.weight)

def twice(self, x, y):
  return self.forward(x), y
)");
  return net;
}

class ScriptModuleTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(2); }

  torch::nn::Linear linear_{nn_linear()};
  torch::Tensor x_ = torch::randn({3, 4});

 private:
  static torch::nn::Linear nn_linear() {
    torch::manual_seed(1);
    return torch::nn::Linear(4, 4);
  }
};

std::vector<std::string> keys(
    const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  return tensors.keys();
}

TEST_F(ScriptModuleTest, NamesAreThoseOfPythonAndTiesAreKept) {
  const ScriptModule module(script_net(linear_));
  using Names = std::vector<std::string>;
  EXPECT_EQ(
      keys(module.named_parameters()), (Names{"first.weight", "first.bias"}));
  EXPECT_EQ(keys(module.named_buffers()), (Names{"steps", "mean"}));
  Names state;
  const auto entries = io::module_state(module);
  for (const auto& entry : entries.entries()) {
    state.push_back(entry.first);
  }
  EXPECT_EQ(
      state,
      (Names{"steps", "mean", "first.weight", "first.bias", "last.weight"}));
  EXPECT_TRUE(entries.tensor("last.weight")
                  .is_alias_of(entries.tensor("first.weight")));
  EXPECT_EQ(module.parameters().size(), 2);
  EXPECT_EQ(module.name(), "Net");
  EXPECT_EQ(module.named_children()["first"]->name(), "Linear");
}

TEST_F(ScriptModuleTest, CopiesTheModuleWithItsFlags) {
  auto original = script_net(linear_);
  original.attr("first").toModule().attr("bias").toTensor().requires_grad_(
      false);
  const ScriptModule module(original);
  const auto parameters = module.named_parameters();
  EXPECT_TRUE(parameters["first.weight"].requires_grad());
  EXPECT_FALSE(parameters["first.bias"].requires_grad());
  torch::NoGradGuard no_grad;
  parameters["first.weight"].zero_();
  EXPECT_TRUE(original.attr("first").toModule().attr("weight").toTensor().equal(
      linear_->weight));
}

TEST_F(ScriptModuleTest, RegisteredTensorsAreThoseOfTheScript) {
  ScriptModule module(script_net(linear_));
  {
    torch::NoGradGuard no_grad;
    module.parameters()[0].zero_();
  }
  EXPECT_TRUE(module.forward(x_).eq(0).all().item<bool>());
  module.forward(x_).sum().backward();
  EXPECT_TRUE(module.parameters()[0].grad().defined());
}

// Both sides through the same kernels: equal to the last bit.
TEST_F(ScriptModuleTest, EveryChangeOfDtypeGivesTheResultOfEagerMode) {
  ScriptModule module(script_net(linear_));
  for (const auto* name :
       {"fp32",
        "bf16-mixed",
        "bf16-mixed",
        "bf16-mixed",
        "fp16-mixed",
        "fp16-mixed",
        "fp32",
        "fp32",
        "bf16-mixed"}) {
    const auto precision = Precision::parse(name);
    const auto run = [&](const auto& forward, const torch::Tensor& weight) {
      weight.mutable_grad() = torch::Tensor();
      torch::Tensor y;
      {
        Autocast autocast(torch::kCPU, precision);
        y = forward();
      }
      y.to(torch::kFloat).square().sum().backward();
      return std::pair(y.detach(), weight.grad());
    };
    const auto scripted =
        run([&] { return module.forward(x_); }, module.parameters()[0]);
    // Not linear_(x_), which casts a view of the weight once more.
    const auto eager = run(
        [&] {
          const auto y = torch::linear(x_, linear_->weight, linear_->bias);
          return torch::linear(y.relu(), linear_->weight);
        },
        linear_->weight);
    EXPECT_EQ(scripted.first.scalar_type(), precision.compute) << name;
    EXPECT_TRUE(scripted.first.equal(eager.first)) << name;
    EXPECT_TRUE(scripted.second.equal(eager.second)) << name;
  }
}

/// What tracing writes for a convolution of stride 2.
Module traced_convolution(
    const torch::Tensor& weight, bool transposed, int64_t dimensions) {
  const auto list = [&](const char* item) {
    std::string text = "[";
    for (int64_t i = 0; i < dimensions; ++i) {
      text += std::string(i > 0 ? ", " : "") + item;
    }
    return text + "]";
  };
  Module module("__torch__.Traced");
  module.register_parameter("weight", weight.clone().requires_grad_(), false);
  module.define(
      "def forward(self, x):\n  return torch._convolution(x, self.weight, "
      "None, " +
      list("2") + ", " + list("1") + ", " + list("1") +
      (transposed ? ", True, " : ", False, ") + list("0") +
      ", 1, False, False, True, True)\n");
  return module;
}

TEST_F(ScriptModuleTest, TracedConvolutionsRunInTheDtypeOfTheRegion) {
  const std::vector<int64_t> sizes{2, 3, 5, 5, 5};
  for (int64_t n = 1; n <= 3; ++n) {
    const at::IntArrayRef shape(sizes.data(), static_cast<size_t>(n) + 2);
    const auto x = torch::randn(shape);
    const std::vector<int64_t> weight_shape(shape.size(), 3);
    const auto weight = torch::randn(weight_shape);
    for (const bool transposed : {false, true}) {
      ScriptModule module(traced_convolution(weight, transposed, n));
      const std::vector<int64_t> two(static_cast<size_t>(n), 2);
      const std::vector<int64_t> one(static_cast<size_t>(n), 1);
      const std::vector<int64_t> zero(static_cast<size_t>(n), 0);
      const auto expected =
          torch::convolution(x, weight, {}, two, one, one, transposed, zero, 1);
      EXPECT_TRUE(module.forward(x).equal(expected)) << n << transposed;
      Autocast autocast(torch::kCPU, torch::kBFloat16);
      EXPECT_EQ(module.forward(x).scalar_type(), torch::kBFloat16)
          << n << transposed;
    }
  }
}

TEST_F(ScriptModuleTest, RunsBeforeTheCopyLeaveNoOptimizedGraph) {
  auto original = script_net(linear_);
  for (int i = 0; i < 4; ++i) {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    original.forward({x_}).toTensor().to(torch::kFloat).sum().backward();
  }
  ScriptModule module(original);
  for (int i = 0; i < 3; ++i) {
    torch::Tensor y;
    {
      Autocast autocast(torch::kCPU, torch::kHalf);
      y = module.forward(x_);
    }
    EXPECT_EQ(y.scalar_type(), torch::kHalf);
    y.to(torch::kFloat).sum().backward();
  }
}

TEST_F(ScriptModuleTest, ACallLeavesTheOptimizerAsItWas) {
  ScriptModule module(script_net(linear_));
  module.forward(x_);
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
  EXPECT_ANY_THROW(module.forward(torch::zeros({3, 5})));
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST_F(ScriptModuleTest, ModeReachesTheScript) {
  ScriptModule module(script_net(linear_));
  EXPECT_TRUE(module.is_training());
  const auto steps = module.named_buffers()["steps"];
  module.forward(x_);
  EXPECT_EQ(steps.item<int64_t>(), 2049);
  module.eval();
  EXPECT_FALSE(module.is_training());
  module.forward(x_);
  EXPECT_EQ(steps.item<int64_t>(), 2049);
  module.train();
  module.forward(x_);
  EXPECT_EQ(steps.item<int64_t>(), 2050);
}

TEST_F(ScriptModuleTest, AModuleSavedInEvaluationModeIsInThatMode) {
  auto original = script_net(linear_);
  original.eval();
  EXPECT_FALSE(ScriptModule(original).is_training());
}

TEST_F(ScriptModuleTest, AReplacedBufferOfAnotherShapeIsRefused) {
  Module grows("__torch__.Grows");
  grows.register_parameter("w", torch::ones({2}).requires_grad_(), false);
  grows.register_buffer("seen", torch::zeros({2}));
  grows.define(R"(
def forward(self, x):
  self.seen = torch.cat([self.seen, x.detach()])
  return x * self.w
)");
  ScriptModule module(grows);
  EXPECT_ERROR(
      module.forward(torch::ones({2})),
      c10::Error,
      "ScriptModule::call: the script replaced buffer seen, Float [2]",
      "write it in place");
}

TEST_F(ScriptModuleTest, LoadedStateIsWhatTheScriptUses) {
  ScriptModule source(script_net(linear_));
  source.forward(x_);
  ScriptModule target(script_net(torch::nn::Linear(4, 4)));
  io::load_module_state(target, io::module_state(source));
  EXPECT_TRUE(target.named_buffers()["steps"].equal(torch::tensor(2049)));
  EXPECT_TRUE(target.forward(x_).equal(source.forward(x_)));
}

TEST_F(ScriptModuleTest, CastsLeaveIntegersAndTies) {
  ScriptModule module(script_net(linear_));
  module.to(torch::kHalf);
  EXPECT_EQ(module.named_buffers()["steps"].scalar_type(), torch::kLong);
  EXPECT_EQ(module.named_buffers()["mean"].scalar_type(), torch::kHalf);
  EXPECT_EQ(module.named_parameters().size(), 2);
  EXPECT_EQ(module.forward(x_.to(torch::kHalf)).scalar_type(), torch::kHalf);
  module.to(torch::kCPU, torch::kDouble);
  EXPECT_EQ(
      module.forward(x_.to(torch::kDouble)).scalar_type(), torch::kDouble);
  EXPECT_EQ(module.named_buffers()["steps"].scalar_type(), torch::kLong);
}

TEST_F(ScriptModuleTest, CastParametersWorksOnIt) {
  ScriptModule module(script_net(linear_));
  EXPECT_EQ(cast_parameters(module, Precision::bf16_master()).size(), 2);
  EXPECT_EQ(
      module.forward(x_.to(torch::kBFloat16)).scalar_type(), torch::kBFloat16);
}

TEST_F(ScriptModuleTest, OtherMethodsAndResultsGoThroughCall) {
  ScriptModule module(script_net(linear_));
  module.eval();
  const auto result = module.call({x_, x_}, "twice").toTuple();
  EXPECT_TRUE(result->elements()[0].toTensor().equal(module.forward(x_)));
  Module counts("__torch__.Counts");
  counts.register_parameter("w", torch::ones({2}).requires_grad_(), false);
  counts.define("def forward(self, x):\n  return x.size(0)\n");
  EXPECT_ERROR(
      ScriptModule(counts).forward(x_),
      c10::Error,
      "ScriptModule::forward: the script returned a Int",
      "call()");
}

TEST_F(ScriptModuleTest, SavedScriptLoadsWithItsPresentWeights) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("ampkit-script-" + std::to_string(::getpid()) + ".pt");
  ScriptModule module(script_net(linear_));
  module.forward(x_);
  {
    torch::NoGradGuard no_grad;
    module.parameters()[0].add_(1);
  }
  module.eval();
  module.save_script(path);
  const auto loaded = load_script_module(path);
  std::filesystem::remove(path);
  EXPECT_FALSE(loaded->is_training());
  EXPECT_EQ(loaded->named_buffers()["steps"].item<int64_t>(), 2049);
  EXPECT_EQ(loaded->parameters().size(), 2);
  EXPECT_TRUE(loaded->forward(x_).equal(module.forward(x_)));
}

TEST_F(ScriptModuleTest, AFileThatIsNoScriptIsNamed) {
  EXPECT_ERROR(
      load_script_module("/nonexistent/model.pt"),
      c10::Error,
      "load_script_module: cannot read /nonexistent/model.pt",
      "torch.jit.save()");
  EXPECT_ERROR(
      load_script_module(__FILE__), c10::Error, "cannot read", __FILE__);
}

} // namespace
} // namespace ampkit
