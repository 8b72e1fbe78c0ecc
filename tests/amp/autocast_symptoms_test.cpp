// What users of autocast run into elsewhere, by what they see. Weights that
// stay as they were are in stale_weight_test.cpp, norm layers in
// norm_symptoms_test.cpp.
#include <ampkit/amp/autocast.h>

#include <future>
#include <thread>

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

namespace nn = torch::nn;

using torch::Tensor;

/// A convolution and two linear layers, one of them written with at::linear.
struct NetImpl : nn::Module {
  NetImpl() {
    conv = register_module("conv", nn::Conv2d(1, 2, 3));
    linear = register_module("linear", nn::Linear(8, 4));
    weight = register_parameter("weight", torch::randn({3, 4}));
  }
  Tensor forward(const Tensor& x) {
    const auto hidden = linear->forward(conv->forward(x).flatten(1)).relu();
    return at::linear(hidden, weight).to(torch::kFloat);
  }
  nn::Conv2d conv{nullptr};
  nn::Linear linear{nullptr};
  Tensor weight;
};
TORCH_MODULE(Net);

Net seeded_net() {
  torch::manual_seed(1);
  return {};
}

const Tensor& input() {
  static const Tensor x =
      torch::randn({2, 1, 4, 4}, at::make_generator<at::CPUGeneratorImpl>(2));
  return x;
}

std::vector<Tensor> gradients(const nn::Module& module) {
  std::vector<Tensor> result;
  for (const auto& parameter : module.parameters()) {
    result.push_back(parameter.grad());
  }
  return result;
}

void expect_equal(
    const std::vector<Tensor>& given, const std::vector<Tensor>& expected) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_TRUE(given[i].defined()) << i;
    EXPECT_TRUE(given[i].equal(expected[i])) << i;
  }
}

std::vector<Tensor> gradients_in_a_region_of_its_own(at::ScalarType dtype) {
  Net net = seeded_net();
  Tensor loss;
  {
    Autocast autocast(torch::kCPU, dtype);
    loss = net->forward(input()).square().sum();
  }
  loss.backward();
  return gradients(*net);
}

template <class Guard>
void expect_evaluation_leaves_the_graph(bool train_before) {
  Net net = seeded_net();
  Tensor loss;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    if (train_before) {
      net->forward(input()).sum().backward();
      net->zero_grad();
    }
    {
      const Guard evaluation;
      net->forward(input());
    }
    loss = net->forward(input()).square().sum();
    ASSERT_TRUE(loss.requires_grad());
  }
  loss.backward();
  expect_equal(
      gradients(*net), gradients_in_a_region_of_its_own(torch::kBFloat16));
}

TEST(AutocastSymptomTest, EvaluationInATrainingRegionDoesNotCutTheGraph) {
  for (const bool train_before : {false, true}) {
    expect_evaluation_leaves_the_graph<torch::NoGradGuard>(train_before);
    expect_evaluation_leaves_the_graph<c10::InferenceMode>(train_before);
  }
}

// A weight that is used without a gradient of its own, as a frozen layer's.
TEST(AutocastSymptomTest, CopiesOfInferenceModeDoNotReachAGraph) {
  nn::Linear linear(4, 4);
  const auto x = torch::randn({2, 4}).requires_grad_();
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  {
    const c10::InferenceMode inference;
    linear->forward(x);
  }
  Tensor frozen;
  {
    const torch::NoGradGuard no_grad;
    frozen = linear->weight.t();
  }
  torch::mm(x, frozen).sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(AutocastSymptomTest, EvaluationsDoNotPileUpCopies) {
  Net net = seeded_net();
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  net->forward(input());
  const auto after_training = Autocast::cached_casts();
  for (int i = 0; i < 50; ++i) {
    const torch::NoGradGuard no_grad;
    net->forward(input());
    const c10::InferenceMode inference;
    net->forward(input());
  }
  // At most one more of each, without history.
  EXPECT_LE(Autocast::cached_casts(), 2 * after_training);
}

TEST(AutocastSymptomTest, RegionsOfTwoDtypesNestWithoutADtypeMismatch) {
  const auto bf16 = gradients_in_a_region_of_its_own(torch::kBFloat16);
  const auto fp16 = gradients_in_a_region_of_its_own(torch::kHalf);
  Net net = seeded_net();
  const auto expect_forward_and_backward = [&](const auto& expected) {
    net->zero_grad();
    net->forward(input()).square().sum().backward();
    expect_equal(gradients(*net), expected);
  };
  Autocast outer(torch::kCPU, torch::kBFloat16);
  for (int i = 0; i < 3; ++i) {
    expect_forward_and_backward(bf16);
    {
      Autocast inner(torch::kCPU, torch::kHalf);
      expect_forward_and_backward(fp16);
      Autocast innermost(torch::kCPU, torch::kBFloat16);
      expect_forward_and_backward(bf16);
    }
    expect_forward_and_backward(bf16);
  }
}

// C++'s nn::Linear calls addmm with weight.t() for a matrix, and otherwise
// matmul and an addition in place of the FP32 bias. Small integers: each sum is
// exact in bf16.
TEST(AutocastSymptomTest, NnLinearGivesTheDtypeAndValueOfAtLinear) {
  torch::manual_seed(3);
  nn::Linear linear(8, 3);
  {
    const torch::NoGradGuard no_grad;
    linear->weight.copy_(torch::randint(-2, 3, {3, 8}));
    linear->bias.copy_(torch::randint(-2, 3, {3}) * 0.5);
  }
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{
             {2, 8}, {8}, {2, 2, 8}, {2, 1, 2, 8}}) {
      const auto x = torch::randint(-2, 3, shape).to(torch::kFloat);
      Autocast autocast(torch::kCPU, dtype);
      const auto module = linear->forward(x);
      const auto op = at::linear(x, linear->weight, linear->bias);
      EXPECT_EQ(module.scalar_type(), dtype) << shape;
      EXPECT_EQ(op.scalar_type(), dtype) << shape;
      EXPECT_TRUE(module.equal(op)) << shape << module << op;
    }
  }
}

TEST(AutocastSymptomTest, NnLinearDoesNotCastItsWeightOnEachForward) {
  nn::Linear linear(8, 3);
  for (const auto& x : {torch::ones({2, 8}), torch::ones({2, 2, 8})}) {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    linear->forward(x);
    const auto once = Autocast::cached_casts();
    EXPECT_GE(once, 1);
    linear->forward(x);
    linear->forward(x);
    EXPECT_EQ(Autocast::cached_casts(), once);
  }
}

// oneDNN has no 16-bit LSTM for processors without 16-bit units and throws
// "could not create a primitive descriptor".
TEST(AutocastSymptomTest, LstmTrainsOnProcessorsWithout16BitUnits) {
  torch::manual_seed(5);
  nn::LSTM lstm(nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true));
  const auto x = torch::randn({5, 2, 4});
  const auto run = [&] {
    lstm->zero_grad();
    const auto output = std::get<0>(lstm->forward(x));
    output.to(torch::kFloat).square().sum().backward();
    return output;
  };
  const auto expected = run();
  std::vector<Tensor> expected_gradients;
  for (const auto& gradient : gradients(*lstm)) {
    expected_gradients.push_back(gradient.clone());
  }
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    Autocast autocast(torch::kCPU, dtype);
    const auto output = run();
    EXPECT_EQ(output.scalar_type(), dtype);
    // Outputs of a cell are below 1; both layers round to 2^-8.
    EXPECT_TRUE(output.to(torch::kFloat).allclose(expected, 0, 0x1p-6));
    const auto given = gradients(*lstm);
    for (size_t i = 0; i < given.size(); ++i) {
      const double largest = expected_gradients[i].abs().max().item<double>();
      EXPECT_TRUE(given[i].allclose(expected_gradients[i], 0, 0x1p-4 * largest))
          << i;
    }
  }
}

TEST(AutocastSymptomTest, ExceptionInANestedRegionLeavesTheOuterOneAsItWas) {
  const auto x = torch::randn({4, 4});
  const auto low = x.to(torch::kBFloat16);
  {
    Autocast outer(torch::kCPU, torch::kBFloat16, {.ops = OpPolicy::strict()});
    EXPECT_ANY_THROW({
      Autocast inner(torch::kCPU, torch::kHalf, {.ops = OpPolicy::pytorch()});
      Autocast off(torch::kCPU, torch::kHalf, {.enabled = false});
      torch::mm(x, torch::ones({3, 3}));
    });
    EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kBFloat16);
    EXPECT_EQ(low.exp().scalar_type(), torch::kFloat); // strict again
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(low.exp().scalar_type(), torch::kBFloat16);
}

// What the user set by hand before, of both devices.
TEST(AutocastSymptomTest, ExceptionRestoresWhatWasSetByHand) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  EXPECT_ANY_THROW({
    Autocast cuda(torch::kCUDA, torch::kBFloat16);
    Autocast cpu(torch::kCPU, torch::kBFloat16);
    torch::mm(torch::ones({2, 2}), torch::ones({3, 3}));
  });
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
}

TEST(AutocastSymptomTest, WorkerThreadDoesNotFallBackToTheDefaultDtype) {
  const auto x = torch::randn({4, 4});
  std::optional<AutocastState> state;
  {
    Autocast autocast(torch::kCPU, torch::kHalf); // the default is bf16
    state = AutocastState::current();
  }
  // The state outlives the region that it was taken from.
  std::thread([&] {
    Autocast autocast(*state);
    EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kHalf);
    std::thread([&] {
      EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kFloat);
    }).join();
  }).join();
}

TEST(AutocastSymptomTest, ThreadsOfTwoDtypesShareAWeightWithoutMixing) {
  Net net = seeded_net();
  const auto losses = [&](at::ScalarType dtype) {
    std::vector<Tensor> result;
    for (int i = 0; i < 20; ++i) {
      Autocast autocast(torch::kCPU, dtype);
      result.push_back(net->forward(input()).detach());
    }
    return result;
  };
  auto bf16 = std::async(std::launch::async, losses, torch::kBFloat16);
  auto fp16 = std::async(std::launch::async, losses, torch::kHalf);
  expect_equal(bf16.get(), losses(torch::kBFloat16));
  expect_equal(fp16.get(), losses(torch::kHalf));
}

TEST(AutocastSymptomTest, BackwardOnAnotherThreadGivesTheSameGradients) {
  const auto expected = gradients_in_a_region_of_its_own(torch::kBFloat16);
  Net net = seeded_net();
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  const auto loss = net->forward(input()).square().sum();
  std::thread([&] { loss.backward(); }).join();
  expect_equal(gradients(*net), expected);
}

// Without one, torch.autocast's C++ functions mean fp16 on CUDA.
TEST(AutocastSymptomTest, RegionWithoutADtypeDoesNotCompile) {
  static_assert(!std::is_default_constructible_v<Autocast>);
  static_assert(!std::is_constructible_v<Autocast, c10::Device>);
  static_assert(
      !std::is_constructible_v<Autocast, c10::Device, AutocastOptions>);
  static_assert(std::is_constructible_v<Autocast, c10::Device, at::ScalarType>);
  static_assert(std::is_constructible_v<Autocast, c10::Device, Precision>);
}

TEST(AutocastSymptomTest, DtypeOfCudaIsNotUsedOnTheCpu) {
  const auto x = torch::randn({4, 4});
  Autocast cuda(torch::kCUDA, torch::kHalf);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kFloat);
  Autocast cpu(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kBFloat16);
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), at::kHalf);
}

// Stock CUDA autocast refuses it, stock CPU autocast does not.
TEST(AutocastSymptomTest, BceLossIsComputedInFloat32OnTheCpu) {
  const auto target = torch::tensor({0.0F, 1.0F, 0.0F, 1.0F});
  const auto p = torch::tensor({0.25F, 0.5F, 0.0F, 1e-6F});
  for (const auto& ops : {OpPolicy::pytorch(), OpPolicy::strict()}) {
    for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
      auto low = p.to(dtype).requires_grad_();
      Autocast autocast(torch::kCPU, dtype, {.ops = ops});
      const auto loss = at::binary_cross_entropy(low, target.to(dtype));
      EXPECT_EQ(loss.scalar_type(), torch::kFloat);
      EXPECT_TRUE(loss.equal(
          at::binary_cross_entropy(low.detach().to(torch::kFloat), target)));
    }
  }
}

// Why CUDA refuses it: a sigmoid of 16 bits is 1 from a logit of 9 on.
TEST(AutocastSymptomTest, BceLossWithLogitsHasNoNanWhereBceHas) {
  const auto target = torch::zeros({1});
  for (const bool with_logits : {false, true}) {
    auto logit = torch::full({1}, 20.0F).to(torch::kHalf).requires_grad_();
    Tensor loss;
    {
      Autocast autocast(torch::kCPU, torch::kHalf);
      loss = with_logits ? at::binary_cross_entropy_with_logits(logit, target)
                         : at::binary_cross_entropy(logit.sigmoid(), target);
    }
    EXPECT_TRUE(loss.isfinite().item<bool>());
    loss.backward();
    EXPECT_EQ(logit.grad().isfinite().item<bool>(), with_logits);
  }
}

// The cast copy of a weight would be a constant of the graph.
TEST(AutocastSymptomTest, TraceInARegionDoesNotKeepAWeightAsAConstant) {
  const auto x = torch::ones({1, 2});
  const auto weight = torch::ones({2, 2}).requires_grad_();
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  torch::mm(x, weight); // its copy is cached
  const auto traced = torch::jit::tracer::trace(
      {x, weight},
      [](torch::jit::Stack inputs) -> torch::jit::Stack {
        return {torch::mm(inputs[0].toTensor(), inputs[1].toTensor())};
      },
      [](const Tensor&) { return std::string(); });
  torch::jit::GraphFunction function("f", traced.first->graph, nullptr);
  const auto run = [&](float value) {
    torch::jit::Stack stack{x, torch::full({2, 2}, value).requires_grad_()};
    function.run(stack);
    return stack.back().toTensor().sum().item<float>();
  };
  EXPECT_EQ(run(1), 4);
  EXPECT_EQ(run(3), 12);
}

} // namespace
} // namespace ampkit
