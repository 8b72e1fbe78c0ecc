// Norm layers in a region, whose input and parameters have different dtypes.
#include <ampkit/amp/autocast.h>

#include <functional>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "support/errors.h"

namespace ampkit {
namespace {

using at::ScalarType;
using torch::Tensor;

/// Input [4, 6, 5], scale and shift of as many elements as the op wants.
struct Norm {
  std::string name;
  int64_t features;
  std::function<Tensor(
      const Tensor& x, const Tensor& scale, const Tensor& shift)>
      run;
};

Tensor batch_norm(
    const Tensor& x, const Tensor& scale, const Tensor& shift, bool training) {
  // Running statistics have the dtype of the parameters, as a module's have.
  const auto mean = torch::zeros_like(scale);
  const auto variance = torch::ones_like(scale);
  return at::batch_norm(
      x, scale, shift, mean, variance, training, 0.1, 1e-5, false);
}

std::vector<Norm> norms() {
  return {
      {"layer_norm",
       5,
       [](auto& x, auto& scale, auto& shift) {
         return at::layer_norm(x, {5}, scale, shift);
       }},
      {"rms_norm",
       5,
       [](auto& x, auto& scale, auto&) { return at::rms_norm(x, {5}, scale); }},
      {"group_norm",
       6,
       [](auto& x, auto& scale, auto& shift) {
         return at::group_norm(x, 2, scale, shift);
       }},
      {"instance_norm",
       6,
       [](auto& x, auto& scale, auto& shift) {
         return at::instance_norm(
             x, scale, shift, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"batch_norm, training",
       6,
       [](auto& x, auto& scale, auto& shift) {
         return batch_norm(x, scale, shift, true);
       }},
      {"batch_norm, evaluation", 6, [](auto& x, auto& scale, auto& shift) {
         return batch_norm(x, scale, shift, false);
       }}};
}

/// One entry of the table: op x dtype of the input x dtype of its parameters.
struct Call {
  const Norm& norm;
  Tensor input;
  Tensor scale;
  Tensor shift;

  Tensor run() const { return norm.run(input, scale, shift); }
  std::string name() const {
    return norm.name + " of " + toString(input.scalar_type()) + " with " +
           toString(scale.scalar_type());
  }
};

constexpr ScalarType kDtypes[] = {
    ScalarType::Float, ScalarType::BFloat16, ScalarType::Half};

void for_every_call(const std::function<void(const Call&)>& check) {
  torch::manual_seed(4);
  const auto table = norms();
  for (const auto& norm : table) {
    const auto x = torch::randn({4, 6, 5});
    const auto scale = torch::rand({norm.features}) + 0.5;
    const auto shift = torch::randn({norm.features});
    for (const auto input : kDtypes) {
      for (const auto parameters : kDtypes) {
        check({norm, x.to(input), scale.to(parameters), shift.to(parameters)});
      }
    }
  }
}

/// The result, or none where torch refuses these dtypes.
std::optional<Tensor> result_of(const Call& call) {
  try {
    return call.run();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

/// The same in a region of LibTorch's own.
std::optional<Tensor> stock_result_of(const Call& call, ScalarType region) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, region);
  auto result = result_of(call);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  return result;
}

// PyTorch's CPU lists know no norm layer, so that a mix of dtypes is an error
// there, or not, by the kernel; its CUDA lists compute all in FP32.
TEST(NormSymptomTest, StrictNormsTakeEveryMixOfDtypesAndGiveFloat32) {
  for (const auto region : {torch::kBFloat16, torch::kHalf}) {
    for_every_call([&](const Call& call) {
      SCOPED_TRACE(call.name());
      Tensor given;
      {
        Autocast autocast(torch::kCPU, region, {.ops = OpPolicy::strict()});
        ASSERT_NO_THROW(given = call.run());
      }
      EXPECT_EQ(given.scalar_type(), torch::kFloat);
      const Call in_float32{
          call.norm,
          call.input.to(torch::kFloat),
          call.scale.to(torch::kFloat),
          call.shift.to(torch::kFloat)};
      EXPECT_TRUE(given.equal(in_float32.run()));
    });
  }
}

TEST(NormSymptomTest, StrictNormsGiveGradientsInTheDtypesOfTheirInputs) {
  for_every_call([](const Call& call) {
    SCOPED_TRACE(call.name());
    const Call leaves{
        call.norm,
        call.input.clone().requires_grad_(),
        call.scale.clone().requires_grad_(),
        call.shift.clone()};
    {
      Autocast autocast(
          torch::kCPU, torch::kBFloat16, {.ops = OpPolicy::strict()});
      leaves.run().square().sum().backward();
    }
    for (const auto& leaf : {leaves.input, leaves.scale}) {
      ASSERT_TRUE(leaf.grad().defined());
      EXPECT_EQ(leaf.grad().scalar_type(), leaf.scalar_type());
      EXPECT_TRUE(leaf.grad().isfinite().all().item<bool>());
    }
  });
}

TEST(NormSymptomTest, WithoutAPolicyNormsDoWhatTorchAutocastDoes) {
  int refused = 0;
  for (const auto region : {torch::kBFloat16, torch::kHalf}) {
    for_every_call([&](const Call& call) {
      SCOPED_TRACE(call.name());
      const auto stock = stock_result_of(call, region);
      std::optional<Tensor> ours;
      {
        Autocast autocast(torch::kCPU, region);
        ours = result_of(call);
      }
      ASSERT_EQ(ours.has_value(), stock.has_value());
      refused += stock.has_value() ? 0 : 1;
      if (stock.has_value()) {
        EXPECT_EQ(ours->scalar_type(), stock->scalar_type());
        EXPECT_TRUE(ours->equal(*stock));
      }
    });
  }
  EXPECT_GT(refused, 0); // or "strict" would have nothing to cure
}

} // namespace
} // namespace ampkit
