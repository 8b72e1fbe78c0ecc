#include <ampkit/amp/recompute.h>

#include <thread>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/fp8.h>
#include <ampkit/amp/precision_controller.h>
#include <ampkit/amp/step_result.h>
#include <gtest/gtest.h>

#include "fp8_support.h"
#include "recompute_support.h"

namespace ampkit {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Three blocks and an input [4, 32]; every run starts from the same seed.
class RecomputeTest : public testing::Test {
 protected:
  // One of fn's forms: a block applied plainly or by checkpoint().
  using Apply = std::function<at::Tensor(Block&, const at::Tensor&)>;

  static at::Tensor plain(Block& block, const at::Tensor& x) {
    return block(x);
  }
  static at::Tensor recomputed(Block& block, const at::Tensor& x) {
    return checkpoint(block, x);
  }

  at::Tensor loss(
      const Apply& apply, const std::optional<AutocastOptions>& in) {
    torch::manual_seed(11);
    std::optional<Autocast> autocast;
    if (in.has_value()) {
      autocast.emplace(torch::kCPU, torch::kBFloat16, *in);
    }
    auto y = input_;
    for (const size_t i : {0, 1, 2, 0}) { // the first is used twice
      y = apply(blocks_[i], y);
    }
    return y.to(torch::kFloat).square().sum();
  }

  Tensors take_gradients() {
    Tensors result{std::exchange(input_.mutable_grad(), at::Tensor())};
    for (const Block& block : blocks_) {
      for (const at::Tensor& parameter : block->parameters()) {
        result.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
      }
    }
    return result;
  }

  Tensors gradients(
      const Apply& apply, const std::optional<AutocastOptions>& in = {}) {
    loss(apply, in).backward();
    return take_gradients();
  }

  static void expect_equal(const Tensors& found, const Tensors& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(equal_bits(found[i], expected[i])) << i;
    }
  }

  int calls() const {
    return blocks_[0]->calls + blocks_[1]->calls + blocks_[2]->calls;
  }

  std::vector<Block> blocks_ = make_blocks(3);
  at::Tensor input_ = torch::randn({4, 32}).requires_grad_();
};

TEST_F(RecomputeTest, GradientsEqualThoseOfThePlainCallsToTheLastBit) {
  const auto expected = gradients(plain);
  expect_equal(gradients(recomputed), expected);
  EXPECT_EQ(calls(), 4 + 8);
}

TEST_F(RecomputeTest, RecomputationHasTheDtypesOfTheCallAfterTheRegion) {
  const auto expected = gradients(plain, AutocastOptions());
  blocks_[1]->dtypes.clear();
  expect_equal(gradients(recomputed, AutocastOptions()), expected);
  EXPECT_EQ(
      blocks_[1]->dtypes, (std::vector{torch::kBFloat16, torch::kBFloat16}));
}

TEST_F(RecomputeTest, StrictRegionIsInForceInBackwardOnAnotherThread) {
  const AutocastOptions strict{.ops = OpPolicy::strict()};
  const auto expected = gradients(plain, strict);
  auto result = loss(recomputed, strict);
  std::thread([&] { result.backward(); }).join();
  expect_equal(take_gradients(), expected);
}

TEST_F(RecomputeTest, ModulePolicyOfTheOpsBeforeGoesOnInside) {
  auto& block = *blocks_[0];
  ModulePolicy policy;
  policy.set("fc1", torch::kFloat, "for the test");
  const auto modules = policy.bind(block);
  std::vector<at::ScalarType> dtypes;
  // A product without parameters runs as its neighbour before, fc1.
  const auto product = [&dtypes](const at::Tensor& x) {
    auto y = torch::mm(x, x.t());
    dtypes.push_back(y.scalar_type());
    return y * y;
  };
  at::Tensor y;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16, {.modules = modules});
    y = checkpoint(product, block.fc1->forward(input_));
    block.fc2->forward(torch::ones({2, 128}));
  }
  y.sum().backward();
  EXPECT_EQ(dtypes, (std::vector{torch::kFloat, torch::kFloat}));
}

TEST_F(RecomputeTest, Fp8LayersGiveTheSameBitsAndCountNothingTwice) {
  torch::manual_seed(2);
  const auto run = [this](const Apply& apply) {
    const auto fp8 = std::make_shared<Fp8Linears>(
        *blocks_[0], Fp8Options{.recipe = Fp8Recipe::delayed});
    Tensors result;
    for (int step = 0; step < 2; ++step) {
      result = gradients(apply, AutocastOptions{.fp8 = fp8});
      fp8->update();
    }
    const auto state = fp8->state_dict();
    for (const std::string column : {"amax_history", "scale", "scale_inv"}) {
      result.push_back(state.tensor("fc1.weight." + column));
    }
    return std::pair(result, fp8->layers().at(0).products);
  };
  const auto [expected, products] = run(plain);
  const auto [found, again] = run(recomputed);
  expect_equal(found, expected);
  EXPECT_EQ(products, 4);
  EXPECT_EQ(again, products);
}

TEST_F(RecomputeTest, ControllerCountsARecomputationAsNothingNew) {
  const auto statistics = [this](const Apply& apply) {
    PrecisionController controller(*blocks_[1], {.sample_interval = 1});
    gradients(apply, AutocastOptions{.modules = controller.modules()});
    controller.update(StepResult::of(true));
    std::vector<int64_t> counts;
    for (const auto& layer : controller.statistics()) {
      counts.push_back(layer.output.elements);
      counts.push_back(layer.output_gradient.elements);
    }
    return counts;
  };
  const auto expected = statistics(plain);
  EXPECT_GT(expected.at(0), 0);
  EXPECT_EQ(statistics(recomputed), expected);
}

TEST_F(RecomputeTest, GeneratorIsLeftWhereThePlainRunLeavesIt) {
  gradients(plain);
  const auto expected = torch::rand({4});
  gradients(recomputed);
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

TEST_F(RecomputeTest, WithoutKeptGeneratorStateTheDropoutMaskIsAnother) {
  const auto expected = gradients(plain);
  const auto found = gradients([](Block& block, const at::Tensor& x) {
    return checkpoint({.preserve_rng_state = false}, block, x);
  });
  EXPECT_FALSE(found[0].equal(expected[0]));
}

TEST_F(RecomputeTest, NestedCheckpointsGiveTheSameBits) {
  const auto expected = gradients(plain, AutocastOptions());
  const auto nested = [](Block& block, const at::Tensor& x) {
    return checkpoint(
        [block](const at::Tensor& outer) mutable {
          const auto inner = checkpoint(
              [block](const at::Tensor& inner_input) mutable {
                return checkpoint(block, inner_input);
              },
              outer);
          return inner * 1;
        },
        x);
  };
  expect_equal(gradients(nested, AutocastOptions()), expected);
  expect_equal(gradients(nested, AutocastOptions()), expected);
}

TEST_F(RecomputeTest, EachPassOverAKeptGraphComputesAgain) {
  const auto expected = gradients(plain);
  auto result = loss(recomputed, {});
  result.backward({}, /*retain_graph=*/true);
  take_gradients();
  const int before = calls();
  result.backward();
  EXPECT_EQ(calls(), before + 4);
  expect_equal(take_gradients(), expected);
}

TEST_F(RecomputeTest, SecondDerivativesWork) {
  const auto second = [this](bool again) {
    const auto f = [](const at::Tensor& x) { return x.tanh() * x.exp(); };
    const auto y = again ? checkpoint(f, input_) : f(input_);
    const auto first = torch::autograd::grad(
        {y.sum()}, {input_}, {}, std::nullopt, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum()}, {input_})[0];
  };
  EXPECT_TRUE(equal_bits(second(true), second(false)));
}

TEST_F(RecomputeTest, ArgumentsAndResultsMayBeOfAnyType) {
  const auto f = [](const at::Tensor& x,
                    const std::vector<at::Tensor>& list,
                    const std::optional<at::Tensor>& some,
                    const std::optional<at::Tensor>& none,
                    int64_t n) {
    EXPECT_FALSE(none.has_value());
    const auto y = (x * list.at(0)).sin() * list.at(1) * static_cast<double>(n);
    return std::tuple(y, (y * *some).cos(), n + 1, std::string("fine"));
  };
  const auto run = [&](bool again) {
    const Tensors list{torch::full({4, 32}, 0.5), input_ * 2};
    const auto some = std::optional(torch::full({32}, 0.25));
    const std::optional<at::Tensor> none;
    const auto [y, z, n, text] =
        again ? checkpoint(f, input_, list, some, none, 3)
              : f(input_, list, some, none, 3);
    EXPECT_EQ(n, 4);
    EXPECT_EQ(text, "fine");
    (y.sum() + z.sum()).backward();
    return take_gradients()[0];
  };
  EXPECT_TRUE(equal_bits(run(true), run(false)));
}

TEST_F(RecomputeTest, ParametersGetGradientsWhereNoInputNeedsOne) {
  const auto x = input_.detach();
  torch::manual_seed(1);
  blocks_[0](x).sum().backward();
  const auto expected = take_gradients();
  torch::manual_seed(1);
  checkpoint(blocks_[0], x).sum().backward();
  const auto found = take_gradients();
  EXPECT_TRUE(equal_bits(found[1], expected[1]));
}

TEST_F(RecomputeTest, WithoutGradModeItIsAPlainCall) {
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(checkpoint(blocks_[0], input_).requires_grad());
  EXPECT_EQ(blocks_[0]->calls, 1);
}

TEST_F(RecomputeTest, GraphThatIsDroppedFreesTheFunction) {
  const auto watched = std::make_shared<int>(1);
  auto y =
      checkpoint([watched](const at::Tensor& x) { return x.exp(); }, input_);
  EXPECT_EQ(watched.use_count(), 2);
  y = at::Tensor();
  EXPECT_EQ(watched.use_count(), 1);
}

TEST_F(RecomputeTest, StopsOnceBackwardHasWhatItNeeds) {
  int ends = 0;
  const auto f = [&ends](const at::Tensor& x) {
    auto y = x.exp();
    ++ends;
    return y;
  };
  checkpoint(f, input_).sum().backward();
  EXPECT_EQ(ends, 1);
  checkpoint({.early_stop = false}, f, input_).sum().backward();
  EXPECT_EQ(ends, 3);
}

TEST_F(RecomputeTest, BackwardInsideTheFunctionWorks) {
  const auto f = [](const at::Tensor& x) {
    const auto y = x.sin();
    const auto slope = torch::autograd::grad(
        {y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    return y * slope[0];
  };
  f(input_).sum().backward();
  const auto expected = take_gradients()[0];
  for (const bool early_stop : {true, false}) {
    checkpoint({.early_stop = early_stop}, f, input_).sum().backward();
    EXPECT_TRUE(equal_bits(take_gradients()[0], expected)) << early_stop;
  }
}

// Asks for what it saved twice.
struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x * 2;
  }
  static Tensors backward(
      torch::autograd::AutogradContext* ctx, const Tensors& gradients) {
    const auto first = ctx->get_saved_variables()[0];
    return {gradients[0] * first + ctx->get_saved_variables()[0]};
  }
};

TEST_F(RecomputeTest, CustomFunctionMayAskTwiceForWhatItSaved) {
  const auto f = [](const at::Tensor& x) { return Twice::apply(x.exp()); };
  f(input_).sum().backward();
  const auto expected = take_gradients()[0];
  checkpoint(f, input_).sum().backward();
  EXPECT_TRUE(equal_bits(take_gradients()[0], expected));
}

} // namespace
} // namespace ampkit
