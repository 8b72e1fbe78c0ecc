#include <ampkit/amp/custom_function.h>

#include <thread>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "amp/autocast_state.h"
#include "support/errors.h"

namespace ampkit {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the last Probe saw: dtypes of its products.
struct Seen {
  torch::Dtype input = torch::kInt;
  torch::Dtype forward = torch::kInt;
  torch::Dtype backward = torch::kInt;
  torch::Dtype exp_in_backward = torch::kInt; // of a bf16 tensor
  bool backward_autocast = false;
};
Seen seen;

/// x times weight by a user's own code, which does its products itself.
struct Probe : torch::autograd::Function<Probe> {
  static at::Tensor forward(
      AutogradContext* ctx,
      at::Tensor x,
      at::Tensor weight,
      const CustomForwardOptions& options) {
    const CustomForward scope(ctx, torch::kCPU, options);
    x = scope.cast(x);
    weight = scope.cast(weight);
    ctx->save_for_backward({x, weight});
    seen.input = x.scalar_type();
    auto y = torch::mm(x, weight);
    seen.forward = y.scalar_type();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const CustomBackward scope(ctx);
    const auto saved = ctx->get_saved_variables();
    seen.backward_autocast = at::autocast::is_autocast_enabled(at::kCPU);
    auto grad_x = torch::mm(grads[0], saved[1].t());
    auto grad_weight = torch::mm(saved[0].t(), grads[0]);
    seen.backward = grad_x.scalar_type();
    seen.exp_in_backward = grad_x.to(torch::kBFloat16).exp().scalar_type();
    return {grad_x, grad_weight, at::Tensor()};
  }
};

struct CustomFunctionTest : ::testing::Test {
  torch::Tensor forward(const CustomForwardOptions& options = {}) {
    seen = {};
    return Probe::apply(x, weight, options).to(torch::kFloat).sum();
  }

  torch::Tensor x = torch::ones({2, 3}).requires_grad_();
  torch::Tensor weight = torch::ones({3, 4}).requires_grad_();
};

TEST_F(CustomFunctionTest, BackwardOutsideTheRegionSeesTheDtypeOfForward) {
  torch::Tensor loss;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    loss = forward();
  }
  loss.backward();
  EXPECT_EQ(seen.input, torch::kFloat);
  EXPECT_EQ(seen.forward, torch::kBFloat16);
  EXPECT_EQ(seen.backward, torch::kBFloat16);
  EXPECT_EQ(x.grad().scalar_type(), torch::kFloat);
  EXPECT_FALSE(autocast_on());
}

TEST_F(CustomFunctionTest, BackwardOnAnotherThreadSeesTheDtypeOfForward) {
  torch::Tensor loss;
  {
    Autocast autocast(torch::kCPU, torch::kHalf);
    loss = forward();
  }
  std::thread([&] { loss.backward(); }).join();
  EXPECT_EQ(seen.backward, torch::kHalf);
}

TEST_F(CustomFunctionTest, BackwardInsideAnotherRegionSeesTheDtypeOfForward) {
  torch::Tensor in_bf16;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    in_bf16 = forward();
  }
  const auto in_fp32 = forward();
  Autocast autocast(torch::kCPU, torch::kHalf);
  in_bf16.backward();
  EXPECT_EQ(seen.backward, torch::kBFloat16);
  in_fp32.backward();
  EXPECT_EQ(seen.backward, torch::kFloat);
  EXPECT_FALSE(seen.backward_autocast);
  EXPECT_TRUE(autocast_on());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), torch::kHalf);
}

TEST_F(CustomFunctionTest, OpThatExpectsFp32IsNotGivenHalfInARegion) {
  torch::Tensor loss;
  {
    Autocast autocast(torch::kCPU, torch::kHalf);
    x.set_data(x.detach().to(torch::kHalf));
    loss = forward({.cast_inputs = torch::kFloat});
    EXPECT_TRUE(autocast_on());
  }
  EXPECT_EQ(seen.input, torch::kFloat);
  EXPECT_EQ(seen.forward, torch::kFloat);
  Autocast autocast(torch::kCPU, torch::kBFloat16);
  loss.backward();
  EXPECT_EQ(seen.backward, torch::kFloat);
  EXPECT_EQ(x.grad().scalar_type(), torch::kHalf);
}

TEST_F(CustomFunctionTest, OutsideARegionInputsAreNotCast) {
  forward({.cast_inputs = torch::kBFloat16}).backward();
  EXPECT_EQ(seen.input, torch::kFloat);
  EXPECT_EQ(seen.backward, torch::kFloat);
}

TEST_F(CustomFunctionTest, RegionOfAnotherDeviceDoesNotCount) {
  Autocast autocast(torch::kCUDA, torch::kBFloat16);
  forward({.cast_inputs = torch::kBFloat16});
  EXPECT_EQ(seen.input, torch::kFloat);
}

TEST_F(CustomFunctionTest, ExceptionInForwardOrBackwardRestoresTheState) {
  struct Thrower : torch::autograd::Function<Thrower> {
    static at::Tensor forward(AutogradContext* ctx, at::Tensor x, bool early) {
      const CustomForward scope(
          ctx, torch::kCPU, {.cast_inputs = torch::kFloat});
      TORCH_CHECK(!early, "early");
      return x.clone();
    }
    static variable_list backward(AutogradContext* ctx, variable_list) {
      const CustomBackward scope(ctx);
      TORCH_CHECK(false, "late");
    }
  };
  torch::Tensor loss;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    EXPECT_ERROR(Thrower::apply(x, true), c10::Error, "early");
    EXPECT_TRUE(autocast_on());
    loss = Thrower::apply(x, false).sum();
  }
  EXPECT_ERROR(loss.backward(), c10::Error, "late");
  EXPECT_FALSE(autocast_on());
}

TEST_F(CustomFunctionTest, CacheSettingOfForwardIsThatOfBackward) {
  torch::Tensor loss;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16, {.cache_enabled = false});
    loss = forward();
  }
  Autocast autocast(torch::kCPU, torch::kHalf);
  torch::mm(x, weight); // keeps casts of both
  const auto kept = Autocast::cached_casts();
  loss.backward();
  EXPECT_EQ(Autocast::cached_casts(), kept);
}

TEST_F(CustomFunctionTest, OpPolicyOfForwardIsThatOfBackward) {
  torch::Tensor stock;
  torch::Tensor strict;
  {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    stock = forward();
    Autocast inner(torch::kCPU, torch::kBFloat16, {.ops = OpPolicy::strict()});
    strict = forward();
  }
  std::thread([&] { strict.backward(); }).join();
  EXPECT_EQ(seen.exp_in_backward, torch::kFloat);
  stock.backward();
  EXPECT_EQ(seen.exp_in_backward, torch::kBFloat16);
}

TEST(CustomForwardTest, CastsFloatingTensorsOfTheDeviceExceptFp64) {
  Autocast autocast(torch::kCPU, torch::kHalf);
  AutogradContext ctx;
  const CustomForward scope(
      &ctx, torch::kCPU, {.cast_inputs = torch::kBFloat16});
  EXPECT_FALSE(autocast_on());
  const auto cast = [&](torch::Dtype dtype) {
    return scope.cast(torch::ones({2}, dtype)).scalar_type();
  };
  EXPECT_EQ(cast(torch::kFloat), torch::kBFloat16);
  EXPECT_EQ(cast(torch::kHalf), torch::kBFloat16);
  EXPECT_EQ(cast(torch::kDouble), torch::kDouble);
  EXPECT_EQ(cast(torch::kLong), torch::kLong);
  EXPECT_EQ(cast(torch::kBool), torch::kBool);
  EXPECT_EQ(cast(torch::kComplexFloat), torch::kComplexFloat);
  const auto elsewhere = torch::ones({2}, torch::kMeta);
  EXPECT_TRUE(scope.cast(elsewhere).is_same(elsewhere));
  EXPECT_FALSE(scope.cast(torch::Tensor()).defined());
  EXPECT_FALSE(scope.cast(std::optional<torch::Tensor>()).has_value());
  const std::optional<torch::Tensor> given = torch::ones({2});
  EXPECT_EQ(scope.cast(given)->scalar_type(), torch::kBFloat16);
  const auto list = scope.cast(std::vector<torch::Tensor>{*given, elsewhere});
  EXPECT_EQ(list.at(0).scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(list.at(1).is_same(elsewhere));
}

TEST(CustomForwardTest, WrongDeviceOrDtypeThrowsAndChangesNothing) {
  Autocast autocast(torch::kCPU, torch::kHalf);
  AutogradContext ctx;
  EXPECT_ERROR(
      CustomForward(&ctx, torch::kMeta), c10::ValueError, "device", "meta");
  EXPECT_ERROR(
      CustomForward(&ctx, torch::kCPU, {.cast_inputs = torch::kLong}),
      c10::ValueError,
      "cast_inputs",
      "Long");
  EXPECT_TRUE(ctx.saved_data.empty());
  EXPECT_TRUE(autocast_on());
}

TEST(CustomBackwardTest, WithoutACustomForwardSaysSo) {
  AutogradContext ctx;
  EXPECT_ERROR(
      CustomBackward{&ctx}, c10::Error, "make a CustomForward in its first");
}

} // namespace
} // namespace ampkit
