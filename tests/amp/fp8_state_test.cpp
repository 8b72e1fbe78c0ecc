// What lives across steps: histories, scales, FP8 copies of weights.

#include <ampkit/amp/fp8.h>

#include "amp/fp8_support.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit {
namespace {

Fp8Options delayed(int64_t history = 4) {
  return {.recipe = Fp8Recipe::delayed, .amax_history_len = history};
}

float saved(const Fp8Linears& fp8, const std::string& key, int64_t column) {
  return fp8.state_dict().tensor(key)[column].item<float>();
}

TEST(Fp8StateTest, ScaleIsThatOfTheLargestAmaxInTheHistory) {
  OneLayer layer(delayed());
  layer.train(torch::full({4, 16}, 7.0));
  EXPECT_EQ(saved(layer.fp8, "0.scale", kGradientColumn), 1); // not before
  layer.fp8.update();
  EXPECT_EQ(saved(layer.fp8, "0.scale", kGradientColumn), 57344.0F / 7);
  EXPECT_EQ(
      saved(layer.fp8, "0.scale_inv", kGradientColumn), 1 / (57344.0F / 7));
  EXPECT_EQ(
      saved(layer.fp8, "0.scale", kWeightColumn),
      448 / layer.weight.abs().max().item<float>());

  layer.train(torch::full({4, 16}, 2.0));
  layer.fp8.update();
  EXPECT_EQ(saved(layer.fp8, "0.scale", kGradientColumn), 57344.0F / 7);
}

TEST(Fp8StateTest, HistoryRollsAndForgets) {
  OneLayer layer(delayed(3));
  for (const float amax : {5.0F, 3.0F, 2.0F}) {
    layer.train(torch::full({4, 16}, amax));
    layer.fp8.update();
  }
  const auto history = layer.fp8.state_dict()
                           .tensor("0.amax_history")
                           .select(1, kGradientColumn);
  // Place 0 is the step to come; then from the oldest to the latest. The 5 was
  // still seen by the last update, as in TransformerEngine.
  EXPECT_TRUE(history.equal(torch::tensor({0.0F, 3.0F, 2.0F}))) << history;
  layer.train(torch::full({4, 16}, 1.0));
  layer.fp8.update();
  EXPECT_EQ(saved(layer.fp8, "0.scale", kGradientColumn), 57344.0F / 3);
}

TEST(Fp8StateTest, MostRecentFollowsTheLastStepAndMarginLeavesRoom) {
  auto options = delayed();
  options.amax_compute_algo = Fp8AmaxAlgorithm::most_recent;
  options.margin = 2;
  OneLayer layer(options);
  for (const float amax : {5.0F, 2.0F}) {
    layer.train(torch::full({4, 16}, amax));
    layer.fp8.update();
    EXPECT_EQ(
        saved(layer.fp8, "0.scale", kGradientColumn), 57344.0F / amax / 4);
  }
  layer.fp8.update(); // nothing seen: the scale stays
  EXPECT_EQ(saved(layer.fp8, "0.scale", kGradientColumn), 57344.0F / 2 / 4);
}

TEST(Fp8StateTest, OverflowIsLeftOutOfTheHistory) {
  OneLayer layer(delayed());
  layer.train(torch::full({4, 16}, 2.0));
  layer.fp8.update();
  layer.train(torch::full({4, 16}, kInf));
  EXPECT_EQ(
      layer.fp8.state_dict()
          .tensor("0.amax_history")[0][kGradientColumn]
          .item<float>(),
      kInf); // seen, not saturated
  layer.fp8.update();
  layer.train(torch::full({4, 16}, 8.0));
  layer.fp8.update();
  EXPECT_EQ(saved(layer.fp8, "0.scale", kGradientColumn), 57344.0F / 8);
}

TEST(Fp8StateTest, OutlierOfAStaleScaleSaturates) {
  OneLayer layer(delayed());
  layer.train(torch::full({4, 16}, 1.0));
  layer.fp8.update();
  const auto input_gradient = [&](float gradient) {
    layer.input.mutable_grad() = torch::Tensor();
    layer.train(torch::full({4, 16}, gradient));
    return layer.input.grad();
  };
  const auto of_one = input_gradient(1);
  EXPECT_TRUE(input_gradient(100).equal(of_one));
  layer.fp8.update(); // has seen it
  // Each is one rounding of BF16, 2^-9, from the same number.
  EXPECT_TRUE(input_gradient(100).allclose(of_one * 100, 0x1p-7, 0));
}

TEST(Fp8StateTest, TwoMicroBatchesGiveEqualOutputs) {
  for (const auto recipe :
       {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row_wise}) {
    OneLayer layer({.recipe = recipe});
    layer.train();
    layer.fp8.update();
    const auto first = layer.train();
    const auto gradient = layer.weight.grad().clone();
    layer.weight.mutable_grad() = torch::Tensor();
    // A batch of another range between them moves no scale.
    layer.fp8.linear(layer.input * 100, layer.weight).sum().backward();
    layer.weight.mutable_grad() = torch::Tensor();
    EXPECT_TRUE(equal_bits(layer.train(), first));
  }
}

TEST(Fp8StateTest, UpdateBetweenForwardAndBackwardLeavesSavedScalesAlone) {
  OneLayer layer(delayed());
  layer.train();
  layer.fp8.update();
  const auto gradient = [&](const torch::Tensor& output) {
    layer.weight.mutable_grad() = torch::Tensor();
    output.backward(torch::ones({4, 16}, torch::kBFloat16));
    return layer.weight.grad();
  };
  const auto early = layer.forward();
  const auto late = layer.forward();
  const auto before = gradient(early);
  layer.fp8.linear(layer.input * 100, layer.weight);
  layer.fp8.update();
  EXPECT_LT(
      saved(layer.fp8, "0.scale", kInputColumn),
      448 / layer.input.abs().max().item<float>() / 50);
  EXPECT_TRUE(gradient(late).equal(before));
}

TEST(Fp8StateTest, ResumeIsBitEqual) {
  const auto step = [](OneLayer& layer, int i) {
    layer.weight.mutable_grad() = torch::Tensor();
    layer.train(torch::full({4, 16}, 1.0 + i));
    torch::NoGradGuard no_grad;
    layer.weight.sub_(layer.weight.grad(), 1e-3);
    layer.fp8.update();
  };
  OneLayer whole(delayed(3));
  OneLayer first(delayed(3));
  for (int i = 0; i < 5; ++i) {
    step(whole, i);
    step(first, i);
  }
  OneLayer resumed(delayed(3));
  resumed.fp8.load_state_dict(first.fp8.state_dict());
  resumed.weight.set_data(first.weight.detach().clone());
  for (int i = 5; i < 10; ++i) {
    step(whole, i);
    step(resumed, i);
  }
  EXPECT_TRUE(resumed.weight.equal(whole.weight));
  EXPECT_TRUE(equal_bits(resumed.forward(), whole.forward()));
  const auto state = whole.fp8.state_dict();
  const auto again = resumed.fp8.state_dict();
  for (const auto& [name, value] : state.entries()) {
    if (name != "recipe") {
      EXPECT_TRUE(again.tensor(name).equal(state.tensor(name))) << name;
    }
  }
}

TEST(Fp8StateTest, LoadingReplacesTheCopiesMadeWithOtherScales) {
  OneLayer trained(delayed());
  trained.train();
  trained.fp8.update();
  OneLayer fresh(delayed());
  fresh.forward(); // quantised with a scale of 1
  fresh.fp8.load_state_dict(trained.fp8.state_dict());
  EXPECT_TRUE(equal_bits(fresh.forward(), trained.forward()));
}

TEST(Fp8StateTest, StateThatDoesNotFitChangesNothing) {
  OneLayer trained(delayed());
  trained.train();
  trained.fp8.update();
  const auto good = trained.fp8.state_dict();
  OneLayer layer(delayed());
  const auto refuse = [&](const std::string& key,
                          const io::StateValue& value,
                          const std::string& what) {
    io::StateDict state = good;
    state.set(key, value);
    EXPECT_ERROR(layer.fp8.load_state_dict(state), c10::Error, key, what);
  };
  refuse("0.amax_history", torch::zeros({5, 3}), "Float [5, 3]");
  refuse("0.scale", torch::ones({3}, torch::kDouble), "Double");
  refuse("0.scale", int64_t{1}, "integer");
  refuse("0.scale_inv", torch::ones({3}), "not a pair");
  refuse("0.scale", torch::full({3}, kInf), "not a pair");
  io::StateDict more = good;
  more.set("1.scale", torch::ones({3}));
  EXPECT_ERROR(layer.fp8.load_state_dict(more), c10::Error, "5 entries");
  OneLayer current({});
  EXPECT_ERROR(
      current.fp8.load_state_dict(good), c10::Error, "delayed", "current");
  EXPECT_EQ(saved(layer.fp8, "0.scale", kGradientColumn), 1);
}

TEST(Fp8StateTest, EvaluationLeavesNoTrace) {
  OneLayer plain(delayed());
  OneLayer evaluated(delayed());
  {
    const torch::NoGradGuard no_grad;
    evaluated.fp8.linear(evaluated.input * 100, evaluated.weight);
  }
  for (OneLayer* layer : {&plain, &evaluated}) {
    layer->train();
    layer->fp8.update();
  }
  EXPECT_TRUE(evaluated.fp8.state_dict().tensor("0.scale").equal(
      plain.fp8.state_dict().tensor("0.scale")));
}

TEST(Fp8StateTest, RecomputationGivesTheSameBitsAndCountsOnce) {
  for (const auto recipe :
       {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row_wise}) {
    OneLayer plain({.recipe = recipe});
    OneLayer checkpointed({.recipe = recipe});
    for (int step = 0; step < 3; ++step) {
      const auto output = plain.train();
      {
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(equal_bits(checkpointed.forward(), output));
      }
      EXPECT_TRUE(equal_bits(checkpointed.train(), output)); // with grad
      EXPECT_TRUE(checkpointed.weight.grad().equal(plain.weight.grad()));
      plain.fp8.update();
      checkpointed.fp8.update();
    }
    const auto state = plain.fp8.state_dict();
    if (recipe == Fp8Recipe::delayed) {
      EXPECT_TRUE(checkpointed.fp8.state_dict()
                      .tensor("0.amax_history")
                      .equal(state.tensor("0.amax_history")));
    }
  }
}

// Two real ranks are in tests/dist/fp8_ranks_test.cpp.
TEST(Fp8StateTest, ReductionThatChangesTheShapeIsRefused) {
  OneLayer wrong(
      {.recipe = Fp8Recipe::delayed, .reduce_amax = [](torch::Tensor& amaxes) {
         amaxes = torch::zeros({1});
       }});
  EXPECT_ERROR(wrong.fp8.update(), c10::Error, "reduce_amax must keep");
}

} // namespace
} // namespace ampkit
