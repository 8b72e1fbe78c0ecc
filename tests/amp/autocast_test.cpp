#include <ampkit/amp/autocast.h>

#include <functional>
#include <stdexcept>
#include <thread>
#include <tuple>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "amp/autocast_state.h"
#include "support/errors.h"

namespace ampkit {
namespace {

TEST(AutocastTest, MatrixProductsRunIn16BitsAndEndWithTheScope) {
  const auto a = torch::randn({4, 4});
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kFloat);
}

TEST(AutocastTest, DtypeComesFromThePrecision) {
  const auto a = torch::randn({4, 4});
  Autocast fp16(torch::kCPU, Precision::fp16_mixed());
  EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kHalf);
  Autocast fp32(torch::kCPU, Precision::fp32());
  EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kFloat);
}

TEST(AutocastTest, UnsupportedDtypeOrDeviceThrowsAndChangesNothing) {
  EXPECT_ERROR(
      Autocast(torch::kCPU, torch::kDouble),
      c10::ValueError,
      "dtype must be Half, BFloat16",
      "Double");
  EXPECT_ERROR(
      Autocast(torch::kCPU, Precision::fp8_mixed()),
      c10::ValueError,
      "fp8-mixed needs the state of its layers");
  EXPECT_ERROR(
      Autocast(torch::kMeta, torch::kHalf),
      c10::ValueError,
      "device must be cpu or cuda",
      "meta");
  EXPECT_FALSE(autocast_on());
}

TEST(AutocastTest, AutocastDoesNotStayOnAfterAnException) {
  const auto dtype_before = at::autocast::get_autocast_dtype(at::kCPU);
  try {
    Autocast autocast(torch::kCPU, torch::kHalf, {.cache_enabled = false});
    throw std::runtime_error("in the region");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(autocast_on());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), dtype_before);
  const auto weight = torch::randn({4, 4}).requires_grad_();
  Autocast autocast(torch::kCPU, torch::kHalf);
  torch::mm(weight, weight);
  EXPECT_EQ(Autocast::cached_casts(), 1); // the cache is on again
}

TEST(AutocastTest, WeightChangedInPlaceIsSeenAtOnce) {
  torch::NoGradGuard no_grad;
  const auto x = torch::ones({1, 2});
  auto weight = torch::ones({2, 2}).requires_grad_();
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 2).bias(false));
  linear->weight = weight;
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(torch::mm(x, weight).sum().item<float>(), 4);
  EXPECT_EQ(linear->forward(x).sum().item<float>(), 4);
  EXPECT_EQ(at::linear(x, weight).sum().item<float>(), 4);
  weight.add_(10);
  EXPECT_EQ(torch::mm(x, weight).sum().item<float>(), 44);
  EXPECT_EQ(linear->forward(x).sum().item<float>(), 44);
  EXPECT_EQ(at::linear(x, weight).sum().item<float>(), 44);
}

TEST(AutocastTest, WeightWhoseStorageIsSwappedIsSeenAtOnce) {
  const auto x = torch::ones({1, 2});
  auto weight = torch::ones({2, 2}).requires_grad_();
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(torch::mm(x, weight).sum().item<float>(), 4);
  weight.set_data(torch::full({2, 2}, 3.0F));
  EXPECT_EQ(torch::mm(x, weight).sum().item<float>(), 12);
}

TEST(AutocastTest, NestedRegionsOfDifferentDtypesWorkOnOneWeight) {
  const auto weight = torch::randn({4, 4}).requires_grad_();
  const auto x = torch::randn({4, 4});
  Autocast outer(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(torch::mm(x, weight).scalar_type(), torch::kBFloat16);
  {
    Autocast inner(torch::kCPU, torch::kHalf);
    EXPECT_EQ(torch::mm(x, weight).scalar_type(), torch::kHalf);
    Autocast off(torch::kCPU, torch::kHalf, {.enabled = false});
    EXPECT_EQ(torch::mm(x, weight).scalar_type(), torch::kFloat);
  }
  EXPECT_EQ(torch::mm(x, weight).scalar_type(), torch::kBFloat16);
}

TEST(AutocastTest, TransposedWeightOfLinearIsCastOnceARegion) {
  torch::nn::Linear linear(4, 3);
  const auto x = torch::randn({2, 4});
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  linear->forward(x);
  EXPECT_EQ(Autocast::cached_casts(), 2); // weight.t() and bias
  linear->forward(x);
  linear->forward(x);
  EXPECT_EQ(Autocast::cached_casts(), 2);
}

/// Every kind of op that autocast runs in 16 bits goes through our cache.
TEST(AutocastTest, EachLowPrecisionOpUsesTheCache) {
  using torch::Tensor;
  const auto like = [](const Tensor& w) { return torch::randn(w.sizes()); };
  const std::vector<std::tuple<
      std::string,
      std::vector<int64_t>,
      std::function<Tensor(const Tensor&)>>>
      cases{
          {"mm", {4, 4}, [&](auto& w) { return at::mm(like(w), w); }},
          {"matmul", {4, 4}, [&](auto& w) { return at::matmul(like(w), w); }},
          {"linear", {4, 4}, [&](auto& w) { return at::linear(like(w), w); }},
          {"addmm",
           {4, 4},
           [&](auto& w) { return at::addmm(like(w), like(w), w); }},
          {"bmm", {2, 4, 4}, [&](auto& w) { return at::bmm(like(w), w); }},
          {"baddbmm",
           {2, 4, 4},
           [&](auto& w) { return at::baddbmm(like(w), like(w), w); }},
          {"addbmm",
           {2, 4, 4},
           [&](auto& w) { return at::addbmm(like(w)[0], like(w), w); }},
          {"conv1d",
           {2, 2, 3},
           [](auto& w) { return at::conv1d(torch::randn({1, 2, 8}), w); }},
          {"conv2d",
           {2, 2, 3, 3},
           [](auto& w) { return at::conv2d(torch::randn({1, 2, 8, 8}), w); }},
          {"conv3d",
           {2, 2, 3, 3, 3},
           [](auto& w) {
             return at::conv3d(torch::randn({1, 2, 5, 5, 5}), w);
           }},
          {"conv_transpose1d",
           {2, 2, 3},
           [](auto& w) {
             return at::conv_transpose1d(torch::randn({1, 2, 8}), w);
           }},
          {"conv_transpose2d",
           {2, 2, 3, 3},
           [](auto& w) {
             return at::conv_transpose2d(torch::randn({1, 2, 8, 8}), w);
           }},
          {"prelu",
           {1},
           [](auto& w) { return at::prelu(torch::randn({4}), w); }},
          {"scaled_dot_product_attention",
           {1, 2, 4, 8},
           [&](auto& w) {
             return at::scaled_dot_product_attention(like(w), w, w);
           }},
      };
  for (const auto& [name, sizes, run] : cases) {
    for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
      const auto weight = torch::randn(sizes).requires_grad_();
      Autocast autocast(torch::kCPU, dtype);
      EXPECT_EQ(run(weight).scalar_type(), dtype) << name;
      EXPECT_EQ(Autocast::cached_casts(), 1) << name;
    }
  }
}

TEST(AutocastTest, CacheEndsWithTheOutermostRegionOnly) {
  const auto weight = torch::randn({4, 4}).requires_grad_();
  {
    Autocast outer(torch::kCPU, torch::kBFloat16);
    {
      Autocast inner(torch::kCPU, torch::kBFloat16);
      torch::mm(weight, weight);
    }
    EXPECT_EQ(Autocast::cached_casts(), 1);
  }
  EXPECT_EQ(Autocast::cached_casts(), 0);
}

TEST(AutocastTest, CacheCanBeSwitchedOff) {
  const auto weight = torch::randn({4, 4}).requires_grad_();
  Autocast autocast(torch::kCPU, torch::kHalf, {.cache_enabled = false});
  torch::mm(weight, weight);
  EXPECT_EQ(Autocast::cached_casts(), 0);
}

TEST(AutocastTest, NoGradForwardDoesNotSpoilTheGraphOfTheNextOne) {
  auto weight = torch::randn({4, 4}).requires_grad_();
  torch::nn::Linear linear(4, 4);
  const auto x = torch::randn({2, 4});
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  {
    torch::NoGradGuard no_grad;
    torch::mm(x, weight);
    linear->forward(x);
  }
  auto loss = (torch::mm(x, weight) + linear->forward(x)).sum();
  ASSERT_TRUE(loss.requires_grad());
  loss.backward();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_TRUE(linear->weight.grad().defined());
}

TEST(AutocastTest, CacheDoesNotGrowUnderNoGrad) {
  torch::nn::Linear linear(4, 4);
  torch::NoGradGuard no_grad;
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  for (int i = 0; i < 100; ++i) {
    linear->forward(torch::randn({2, 4}));
    linear->weight.add_(1);
  }
  EXPECT_EQ(Autocast::cached_casts(), 2);
}

TEST(AutocastTest, InputsAndActivationsAreNotKept) {
  const auto x = torch::randn({4, 4});
  const auto weight = torch::randn({4, 4}).requires_grad_();
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  const auto hidden = torch::mm(x, weight).to(torch::kFloat);
  torch::mm(hidden.t(), hidden);
  EXPECT_EQ(Autocast::cached_casts(), 1);
}

TEST(AutocastTest, GradientsOfTwoUsesOfACachedWeightAddUp) {
  auto weight = torch::ones({2, 2}).requires_grad_();
  const auto x = torch::ones({1, 2});
  torch::Tensor loss;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    loss = (at::linear(x, weight) + at::linear(x, weight)).sum();
  }
  loss.backward();
  EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
  EXPECT_TRUE(weight.grad().equal(torch::full({2, 2}, 2.0F))) << weight.grad();
}

TEST(AutocastTest, EachSliceOfAFlatWeightIsACopyOfItsOwn) {
  auto flat = torch::cat({torch::ones({4}), torch::full({4}, 2.0F)});
  flat.requires_grad_();
  const auto x = torch::ones({1, 2});
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  const auto first = torch::mm(x, flat.narrow(0, 0, 4).view({2, 2}));
  const auto second = torch::mm(x, flat.narrow(0, 4, 4).view({2, 2}));
  EXPECT_EQ(first.sum().item<float>(), 4);
  EXPECT_EQ(second.sum().item<float>(), 8);
}

TEST(AutocastTest, GuardIsInvisibleInAnotherThreadWithoutTheHelper) {
  const auto a = torch::randn({4, 4});
  Autocast autocast(torch::kCPU, torch::kHalf);
  const AutocastState state = AutocastState::current();
  std::thread([&] {
    EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kFloat);
    {
      Autocast same(state);
      EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kHalf);
    }
    EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kFloat);
  }).join();
}

// What torch.autocast would do, set by hand, must not change because a guard
// was used earlier in the process.
TEST(AutocastTest, StockAutocastStillUsesItsOwnCache) {
  {
    Autocast install(torch::kCPU, torch::kHalf);
  }
  torch::NoGradGuard no_grad;
  auto weight = torch::ones({2, 2}).requires_grad_();
  const auto x = torch::ones({1, 2});
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  {
    torch::AutoGradMode grad(true);
    torch::mm(x, weight);
  }
  weight.add_(10);
  torch::AutoGradMode grad(true);
  const auto stale = torch::mm(x, weight);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(stale.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(stale.sum().item<float>(), 4); // the known fault of the stock cache
  EXPECT_EQ(Autocast::cached_casts(), 0);
}

TEST(AutocastTest, ScriptedModuleTrainsUnderTheGuard) {
  torch::jit::Module module("m");
  module.register_parameter("weight", torch::ones({2, 2}), false);
  module.define("def forward(self, x):\n  return torch.mm(x, self.weight)\n");
  auto weight = module.attr("weight").toTensor();
  weight.set_requires_grad(true);
  torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(0.5));
  const auto x = torch::ones({1, 2});
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, torch::kBFloat16);
      loss = module.forward({x}).toTensor().to(torch::kFloat).sum();
    }
    loss.backward();
    sgd.step();
  }
  EXPECT_TRUE(weight.equal(torch::full({2, 2}, -0.5F))) << weight;
}

} // namespace
} // namespace ampkit
