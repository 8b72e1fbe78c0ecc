// What every optimizer must do, in every dtype and with both kernels; the names
// are those of the symptoms of optimizers that don't (docs/symptoms.md).

#include <typeinfo>

#include <ATen/Parallel.h>
#include <ampkit/optim/adafactor.h>
#include <ampkit/optim/adagrad.h>
#include <ampkit/optim/adam.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/lamb.h>
#include <ampkit/optim/lion.h>
#include <ampkit/optim/muon.h>
#include <ampkit/optim/rmsprop.h>
#include <ampkit/optim/sgd.h>
#include <torch/torch.h>

#include "optim/all_optimizers.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::optim {
namespace {

using Param = std::tuple<OptimizerCase, at::ScalarType, Kernel>;

class EveryOptimizer : public ::testing::TestWithParam<Param> {
 protected:
  const OptimizerCase& tested() const { return cases_; }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
  OptimizerWorld world() const { return world(dtype()); }
  OptimizerWorld world(at::ScalarType type) const {
    return {tested(), type, std::get<2>(GetParam())};
  }

 private:
  OptimizerCase cases_ = std::get<0>(GetParam());
};

INSTANTIATE_TEST_SUITE_P(
    All,
    EveryOptimizer,
    ::testing::Combine(
        ::testing::ValuesIn(all_optimizers()),
        ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
        ::testing::Values(Kernel::stock, Kernel::highway)),
    [](const auto& of) {
      const bool stock = std::get<2>(of.param) == Kernel::stock;
      return std::get<0>(of.param).name + toString(std::get<1>(of.param)) +
             (stock ? "Stock" : "Highway");
    });

TEST_P(EveryOptimizer, GradientOfExactlyZeroGivesNoNan) {
  auto w = world();
  for (const auto& p : w.parameters.params) {
    p.mutable_grad() = torch::zeros_like(p);
  }
  for (int step = 0; step < 3; ++step) {
    w.optimizer->step();
  }
  for (const auto& weight : w.weights()) {
    EXPECT_TRUE(weight.isfinite().all().item<bool>());
  }
}

template <class Optimizer>
void expect_unchanged_by_zero_gradients(typename Optimizer::Options options) {
  options.weight_decay = 0; // which would move them
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    torch::manual_seed(8);
    const auto before = torch::randn({5, 19}).to(dtype);
    const auto weight = before.clone().requires_grad_();
    weight.mutable_grad() = torch::zeros_like(weight);
    Optimizer optimizer({weight}, options);
    for (int step = 0; step < 3; ++step) {
      optimizer.step();
    }
    EXPECT_TRUE(weight.equal(before))
        << dtype << " " << typeid(Optimizer).name();
  }
}

// An eps of 1e-8 is 0 in fp16, and 0 / 0 is NaN.
TEST(EveryOptimizerUndecayed, GradientOfExactlyZeroLeavesA16BitWeightAlone) {
  for (const auto kernel : {Kernel::stock, Kernel::automatic}) {
    expect_unchanged_by_zero_gradients<Adafactor>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<Adagrad>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<Adam>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<AdamW>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<LAMB>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<Lion>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<Muon>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<RMSprop>({.kernel = kernel});
    expect_unchanged_by_zero_gradients<SGD>({.kernel = kernel});
  }
}

// Each step alone is below half an ulp of a bf16 weight.
TEST_P(EveryOptimizer, SmallUpdatesOfLowPrecisionWeightsAreNotLost) {
  auto low = world();
  auto full = world(at::kFloat);
  const auto each = [&](const auto& body) {
    for (size_t i = 0; i < 2; ++i) {
      body(low.parameters.params[i], full.parameters.params[i]);
    }
  };
  const torch::NoGradGuard no_grad;
  each([](const auto& a, const auto& b) {
    a.fill_(1);
    b.fill_(1);
  });
  low.set_lr(6e-4);
  full.set_lr(6e-4);
  for (int step = 0; step < 200; ++step) {
    each([&](const auto& a, const auto& b) {
      a.mutable_grad() = (torch::rand(a.sizes()) + 0.5).to(dtype());
      b.mutable_grad() = a.grad().to(at::kFloat);
    });
    low.optimizer->step();
    full.optimizer->step();
  }
  EXPECT_TRUE(same_bits(low.masters(), full.masters()));
  each([&](const auto& a, const auto& b) {
    EXPECT_TRUE(a.equal(b.to(dtype())));
    EXPECT_GT((1 - b).abs().mean().template item<float>(), 0x1p-8F)
        << "of bf16, one ulp";
  });
}

// The reference: fp32 weights that are rounded after each step.
TEST_P(EveryOptimizer, WithoutMastersEachStepRoundsIntoTheParameter) {
  for (const bool adaptive : {false, true}) {
    auto low = world();
    auto full = world(at::kFloat);
    low.optimizer->keep_masters(false);
    const torch::NoGradGuard no_grad;
    for (int step = 0; step < 4; ++step) {
      low.set_gradients(step);
      for (size_t i = 0; i < 2; ++i) {
        const auto& a = low.parameters.params[i];
        const auto& b = full.parameters.params[i];
        b.copy_(a);
        b.mutable_grad() = a.grad().to(at::kFloat);
      }
      FusedStepInputs inputs;
      if (adaptive) {
        inputs.adaptive_clip = AdaptiveClip{.clip_factor = 0.01};
      }
      low.optimizer->fused_step(inputs);
      full.optimizer->fused_step(inputs);
      for (size_t i = 0; i < 2; ++i) {
        const auto& a = low.parameters.params[i];
        EXPECT_TRUE(a.equal(full.parameters.params[i].to(dtype())));
        EXPECT_TRUE(low.optimizer->master(a).is_same(a));
      }
    }
  }
}

TEST_P(EveryOptimizer, MastersThatAreNoLongerKeptGo) {
  auto w = world();
  w.step(0);
  w.optimizer->keep_masters(false);
  w.step(1);
  const auto state = w.state();
  for (const auto& [name, value] : state.entries()) {
    EXPECT_FALSE(name.ends_with(".master")) << name;
  }
}

TEST_P(EveryOptimizer, WeightsLoadedLaterAreNotOverwrittenByStaleMasters) {
  auto w = world();
  w.step(0); // makes masters of the first weights
  torch::manual_seed(77);
  const auto loaded = torch::randn({5, 19}).to(dtype());
  {
    const torch::NoGradGuard no_grad;
    w.parameters.params[0].data().copy_(loaded); // bumps no version
    w.parameters.params[1].fill_(0.5);
  }
  w.set_lr(0);
  w.step(1);
  EXPECT_TRUE(w.weights()[0].equal(loaded));
  EXPECT_TRUE(w.weights()[1].equal(torch::full({9, 19}, 0.5).to(dtype())));
}

TEST_P(EveryOptimizer, LoadedStateIsNotCastToTheDtypeOfTheParameters) {
  auto first = world();
  for (int step = 0; step < 3; ++step) {
    first.step(step);
  }
  const auto saved = first.state();
  auto second = world();
  second.step(99); // state that must be replaced
  second.take_over(first);
  EXPECT_TRUE(same_bits(second.state(), saved));
  for (const auto& [name, value] : saved.entries()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      EXPECT_EQ(tensor->scalar_type(), at::kFloat) << name;
    }
  }
  first.step(3);
  second.step(3);
  EXPECT_TRUE(same_bits(second.weights(), first.weights()));
  EXPECT_TRUE(same_bits(second.state(), first.state()));
}

TEST_P(EveryOptimizer, StateOfAnotherModelIsRefusedByName) {
  auto w = world();
  w.step(0);
  const NamedParameters other{
      {torch::ones({2, 3}).to(dtype()).requires_grad_(),
       torch::ones({9, 19}).to(dtype()).requires_grad_()},
      {"layer.weight", "tail.weight"}};
  const auto foreign = tested().make(other, Kernel::automatic);
  for (const auto& p : other.params) {
    p.mutable_grad() = torch::ones_like(p);
  }
  foreign->step();
  const auto before = w.state();
  EXPECT_ERROR(
      w.optimizer->load_state_dict(foreign->state_dict()),
      c10::Error,
      tested().name.c_str(),
      "'layer.weight' was ",
      "[2, 3]",
      "'group.0.parameter.head.weight' is missing",
      "tail.weight");
  EXPECT_TRUE(same_bits(w.state(), before)) << "nothing was changed";
}

TEST_P(EveryOptimizer, StateOfAnotherShapeOrDtypeIsRefusedByName) {
  auto w = world();
  w.step(0);
  const auto saved = w.state();
  for (const auto& [name, value] : saved.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor == nullptr) {
      continue;
    }
    auto narrow = w.state();
    narrow.set(name, tensor->to(at::kHalf));
    EXPECT_ERROR(
        w.optimizer->load_state_dict(narrow), c10::Error, "'" + name + "'");
    auto flat = w.state();
    flat.set(name, torch::ones({2}));
    EXPECT_ERROR(
        w.optimizer->load_state_dict(flat), c10::Error, "'" + name + "'");
    EXPECT_TRUE(same_bits(w.state(), saved));
  }
}

TEST_P(EveryOptimizer, SkippedStepsLeaveEverythingToTheLastBit) {
  for (const int steps : {0, 2}) {
    auto w = world();
    auto plain = world();
    for (int step = 0; step < steps; ++step) {
      w.step(step);
      plain.step(step);
    }
    const auto weights = w.weights();
    for (const float found_inf : {1.0F, 1e-3F, kInf}) {
      w.set_gradients(50);
      w.parameters.params[0].mutable_grad().fill_(kNan);
      w.optimizer->fused_step(
          {.grad_divisor = torch::full({}, kNan),
           .found_inf = torch::full({}, found_inf)});
    }
    EXPECT_TRUE(same_bits(w.weights(), weights));
    EXPECT_EQ(w.optimizer->steps_of(w.parameters.params[0]), steps);
    w.step(60);
    plain.step(60);
    EXPECT_TRUE(same_bits(w.state(), plain.state()));
    EXPECT_TRUE(same_bits(w.weights(), plain.weights()));
  }
}

TEST_P(EveryOptimizer, UnscalingIsPartOfTheStepAndGradientsStay) {
  auto scaled = world();
  auto plain = world();
  for (int step = 0; step < 3; ++step) {
    plain.set_gradients(step);
    scaled.set_gradients(step);
    for (size_t i = 0; i < 2; ++i) {
      const auto grad = scaled.parameters.params[i].grad();
      scaled.parameters.params[i].mutable_grad() = grad * 8; // exact
    }
    const auto before = scaled.parameters.params[0].grad().clone();
    scaled.optimizer->fused_step(
        {.grad_divisor = torch::full({}, 8.0F), .found_inf = torch::zeros({})});
    plain.optimizer->step();
    EXPECT_TRUE(scaled.parameters.params[0].grad().equal(before));
  }
  EXPECT_TRUE(same_bits(scaled.masters(), plain.masters()));
}

TEST_P(EveryOptimizer, NanInAGradientIsSeenInTheWeights) {
  auto w = world();
  w.step(0);
  w.set_gradients(1);
  w.parameters.params[0].mutable_grad().fill_(kNan);
  w.optimizer->step();
  EXPECT_TRUE(w.weights()[0].isnan().all().item<bool>());
  EXPECT_TRUE(w.weights()[1].isfinite().all().item<bool>());
}

class EveryOptimizerOnce : public ::testing::TestWithParam<OptimizerCase> {};

INSTANTIATE_TEST_SUITE_P(
    All,
    EveryOptimizerOnce,
    ::testing::ValuesIn(all_optimizers()),
    [](const auto& of) { return of.param.name; });

TEST_P(EveryOptimizerOnce, NoParametersIsAnErrorInsteadOfSilence) {
  EXPECT_ERROR(
      GetParam().make({}, Kernel::automatic),
      c10::ValueError,
      GetParam().name.c_str(),
      "0 parameters",
      "is the submodule registered");
}

TEST_P(EveryOptimizerOnce, ResultsDontDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> runs;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    torch::manual_seed(7);
    NamedParameters parameters;
    for (const int64_t rows : {1, 7, 300}) {
      // No stock kernel either: Muon's products are LibTorch's.
      const int64_t columns = GetParam().name == "Muon" ? 8 : 400;
      parameters.params.push_back(
          torch::randn({rows, columns}).requires_grad_());
      parameters.names.push_back(std::to_string(rows));
    }
    const auto optimizer = GetParam().make(parameters, Kernel::automatic);
    for (int step = 0; step < 3; ++step) {
      for (const auto& p : parameters.params) {
        p.mutable_grad() = torch::randn_like(p);
      }
      optimizer->step();
    }
    runs.push_back(parameters.params);
  }
  at::set_num_threads(before);
  EXPECT_TRUE(same_bits(runs[1], runs[0]));
  EXPECT_TRUE(same_bits(runs[2], runs[0]));
}

TEST_P(EveryOptimizerOnce, Fp64ParametersKeepFp64State) {
  OptimizerWorld wide(GetParam(), at::kDouble);
  OptimizerWorld single(GetParam(), at::kFloat);
  for (int step = 0; step < 3; ++step) {
    wide.step(step);
    single.step(step);
  }
  const auto state = wide.state();
  for (const auto& [name, value] : state.entries()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      EXPECT_EQ(tensor->scalar_type(), at::kDouble) << name;
    }
  }
  // Muon's directions are bf16 numbers.
  const double bound = GetParam().name == "Muon" ? 1e-3 : 1e-5;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(wide.weights()[i].allclose(
        single.weights()[i].to(at::kDouble), bound, bound));
  }
}

} // namespace
} // namespace ampkit::optim
