#include <ampkit/diagnose/watch.h>

#include <array>
#include <thread>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/script_module.h>
#include <ampkit/optim/adamw.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "optim/synchronisation_counter.h"
#include "support/errors.h"
#include "support/float_limits.h"

namespace ampkit::diagnose {
namespace {

namespace nn = torch::nn;

// Two layers and something between them.
struct TwoLayers : nn::Module {
  TwoLayers() {
    first = register_module("first", nn::Linear(4, 4));
    last = register_module("last", nn::Linear(4, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(between(first->forward(x)));
  }
  nn::Linear first{nullptr};
  nn::Linear last{nullptr};
  std::function<at::Tensor(const at::Tensor&)> between =
      [](const at::Tensor& x) { return torch::relu(x); };
};

class WatchTest : public testing::Test {
 protected:
  WatchTest() { torch::manual_seed(0); }

  std::optional<Finding> run(const at::Tensor& x) {
    auto step = watch.step();
    step.input("x", x);
    net->forward(x).sum().backward();
    return step.finish();
  }

  std::shared_ptr<TwoLayers> net = std::make_shared<TwoLayers>();
  Watch watch{*net};
};

TEST_F(WatchTest, AHealthyStepFindsNothing) {
  EXPECT_FALSE(run(torch::randn({3, 4})).has_value());
  EXPECT_EQ(watch.watched_steps(), 1);
  EXPECT_TRUE(watch.findings().empty());
}

TEST_F(WatchTest, ABirthInForwardIsNamedWithItsPlaceAndNumbers) {
  net->between = [](const at::Tensor& x) { return (x * 0).log(); };
  const auto finding = run(torch::randn({3, 4}));
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::logarithm);
  EXPECT_EQ(finding->op, "aten::log");
  EXPECT_EQ(finding->direction, Direction::forward);
  EXPECT_EQ(finding->after, "first");
  EXPECT_EQ(finding->before, "last");
  EXPECT_EQ(finding->module, "");
  ASSERT_EQ(finding->inputs.size(), 1);
  EXPECT_EQ(finding->inputs[0].zeros, 12);
  EXPECT_EQ(finding->output.negative_infs, 12);
  EXPECT_GT(finding->spread, 0);
}

TEST_F(WatchTest, ABirthInBackwardNamesTheForwardOpAndItsModule) {
  net->between = [](const at::Tensor& x) { return (x * 0).sqrt(); };
  const auto finding = run(torch::randn({3, 4}));
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::singular_gradient);
  EXPECT_EQ(finding->direction, Direction::backward);
  EXPECT_EQ(finding->node, "SqrtBackward0");
  EXPECT_EQ(finding->forward_op, "aten::sqrt");
  EXPECT_EQ(finding->after, "first");
  EXPECT_EQ(finding->before, "last");
}

TEST_F(WatchTest, TheOtherBranchOfWhereIsFound) {
  net->between = [](const at::Tensor& x) {
    return torch::where(x > 1e9, (x * 0).sqrt(), x);
  };
  const auto finding = run(torch::randn({3, 4}));
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::singular_gradient);
  EXPECT_EQ(finding->forward_op, "aten::sqrt");
}

TEST_F(WatchTest, AnOpThatUsesAParameterIsPlacedByIt) {
  {
    const torch::NoGradGuard no_grad;
    net->last->weight.fill_(3e38F);
  }
  const auto finding = run(torch::full({3, 4}, 1e3F));
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::forward_overflow) << to_string(*finding);
  EXPECT_EQ(finding->module, "last");
  EXPECT_EQ(finding->parameter, "last.weight");
  EXPECT_EQ(finding->op, "aten::addmm");
  EXPECT_EQ(finding->caller, "aten::addmm");
  ASSERT_TRUE(finding->wide_amax.has_value());
  EXPECT_GT(*finding->wide_amax, 3.4e38);
}

TEST_F(WatchTest, BadInputNamesTheSample) {
  auto x = torch::randn({8, 4});
  x[5][1] = kNan;
  const auto finding = run(x);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::bad_input);
  EXPECT_EQ(finding->input, "x");
  EXPECT_EQ(finding->sample, 5);
}

TEST_F(WatchTest, ABadParameterIsNamed) {
  {
    const torch::NoGradGuard no_grad;
    net->first->bias[2] = kInf;
  }
  const auto finding = run(torch::randn({3, 4}));
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::bad_parameter);
  EXPECT_EQ(finding->parameter, "first.bias");
  EXPECT_EQ(finding->module, "first");
}

TEST_F(WatchTest, AMaskAndUninitialisedMemoryAreHealthy) {
  net->between = [](const at::Tensor& x) {
    const auto mask = torch::ones({4, 4}, at::kBool).tril();
    const auto scores = at::matmul(x.unsqueeze(-1), x.unsqueeze(-2));
    const auto garbage = torch::empty({1000});
    return scores.masked_fill(~mask, -kInf).softmax(-1).sum(-1) +
           garbage.fill_(1).mean();
  };
  const auto finding = run(torch::randn({3, 4}));
  EXPECT_FALSE(finding.has_value()) << to_string(*finding);
}

TEST_F(WatchTest, AFullyMaskedRowIsTheSoftmaxsFault) {
  net->between = [](const at::Tensor& x) {
    return x.masked_fill(torch::ones({4}, at::kBool), -kInf).softmax(-1);
  };
  const auto finding = run(torch::randn({3, 4}));
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->verdict, Verdict::masked_row) << to_string(*finding);
  EXPECT_EQ(finding->op, "aten::_softmax");
}

TEST_F(WatchTest, WhatReachesNothingIsNoAlarm) {
  net->between = [](const at::Tensor& x) {
    const auto unused = (x * 0).log();
    return torch::relu(x);
  };
  EXPECT_FALSE(run(torch::randn({3, 4})).has_value());
}

TEST_F(WatchTest, WithoutBackwardAnUnusedResultCounts) {
  const torch::NoGradGuard no_grad;
  auto step = watch.step();
  const auto y = net->forward(torch::full({1, 4}, 1.0F)).log() * kNan;
  EXPECT_TRUE(step.finish().has_value());
}

TEST_F(WatchTest, StepsMicroBatchesAndRanksAreReported) {
  Watch ranked(*net, {.rank = 3});
  auto step = ranked.step(41);
  for (int64_t i = 0; i < 3; ++i) {
    step.micro_batch(i);
    auto x = torch::randn({2, 4});
    x[0][0] = i == 2 ? kNan : 0;
    net->forward(x).sum().backward();
  }
  const auto finding = step.finish();
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->step, 41);
  EXPECT_EQ(finding->micro_batch, 2);
  EXPECT_EQ(finding->rank, 3);
}

TEST_F(WatchTest, OnlyTheRankWithTheBadBatchHasAFinding) {
  std::array<std::optional<Finding>, 2> found;
  std::array<std::thread, 2> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = std::thread([rank, &found] {
      TwoLayers replica;
      Watch watched(replica, {.rank = rank});
      auto step = watched.step();
      const auto x = torch::full({2, 4}, rank == 1 ? kNan : 1.0F);
      replica.forward(x).sum().backward();
      found[rank] = step.finish();
    });
  }
  for (auto& rank : ranks) {
    rank.join();
  }
  EXPECT_FALSE(found[0].has_value());
  ASSERT_TRUE(found[1].has_value());
  EXPECT_EQ(found[1]->rank, 1);
}

TEST_F(WatchTest, WatchingChangesNoNumbers) {
  const auto x = torch::randn({3, 4});
  net->forward(x).sum().backward();
  const auto expected = net->first->weight.grad().clone();
  net->zero_grad();
  run(x);
  EXPECT_TRUE(torch::equal(net->first->weight.grad(), expected));
}

TEST_F(WatchTest, OverflowOfScaledGradientsIsCountedNotReported) {
  GradScaler scaler({.init_scale = 0x1p30});
  optim::AdamW optimizer(net->parameters(), {.lr = 1e-3});
  for (int i = 0; i < 30; ++i) {
    optimizer.zero_grad();
    auto step = watch.step();
    at::Tensor loss;
    {
      Autocast autocast(torch::kCPU, at::kHalf);
      loss = net->forward(torch::randn({3, 4})).sum();
    }
    scaler.scale(loss).backward();
    step.scaled(scaler, scaler.step(optimizer));
    scaler.update();
    const auto finding = step.finish();
    EXPECT_FALSE(finding.has_value()) << to_string(*finding);
  }
  EXPECT_GT(watch.handled_overflows(), 5);
  EXPECT_EQ(watch.handled_overflows(), scaler.steps_skipped());
}

TEST_F(WatchTest, SamplingLooksAtEveryNthStep) {
  Watch sampling(*net, {.interval = 3});
  std::vector<bool> watched;
  for (int i = 0; i < 7; ++i) {
    auto step = sampling.step();
    watched.push_back(step.watched());
  }
  EXPECT_THAT(
      watched,
      testing::ElementsAre(true, false, false, true, false, false, true));
  EXPECT_EQ(sampling.watched_steps(), 3);
}

TEST_F(WatchTest, DeferredReadingWaitsForNothingAndFindsTheSame) {
  net->between = [](const at::Tensor& x) { return (x * 0).log(); };
  Watch deferred(*net, {.interval = 2, .defer_on_cpu = true});
  {
    const SynchronisationCounter counter;
    auto step = deferred.step();
    net->forward(torch::ones({3, 4})).sum().backward();
    EXPECT_FALSE(step.finish().has_value());
    EXPECT_EQ(SynchronisationCounter::count(), 0);
  }
  ASSERT_EQ(deferred.findings().size(), 1);
  EXPECT_EQ(deferred.findings()[0].op, "aten::log");
  EXPECT_EQ(deferred.findings()[0].verdict, Verdict::logarithm);
}

TEST_F(WatchTest, OneStepAtATimeOnAThread) {
  auto step = watch.step();
  EXPECT_ERROR(auto other = watch.step(), c10::Error, "Watch::step", "already");
  step.finish();
  EXPECT_NO_THROW(watch.step());
}

TEST_F(WatchTest, OptionsOutOfRangeAreRefused) {
  EXPECT_ERROR(
      Watch(*net, {.interval = 0}), c10::ValueError, "interval", "got 0");
  EXPECT_ERROR(Watch(*net, {.rank = -1}), c10::ValueError, "rank", "got -1");
  EXPECT_ERROR(Watch(*net, {.scale_floor = 0}), c10::ValueError, "scale_floor");
}

TEST_F(WatchTest, AScriptedModuleIsSeenWithItsLine) {
  torch::jit::Module script("__torch__.Scripted");
  script.register_parameter("weight", torch::ones({4}).requires_grad_(), false);
  script.define(
      "def forward(self, x):\n"
      "  y = x * self.weight\n"
      "  return torch.log(y - y)\n");
  ScriptModule module(script);
  Watch scripted(module);
  auto step = scripted.step();
  module.forward(torch::ones({2, 4})).sum().backward();
  const auto finding = step.finish();
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->op, "aten::log");
  EXPECT_THAT(finding->source_line, testing::HasSubstr(":"));
}

TEST_F(WatchTest, TheTextSaysWhatAndWhereAndWhatToDo) {
  net->between = [](const at::Tensor& x) { return (x * 0).log(); };
  const auto text = to_string(*run(torch::ones({3, 4})));
  for (const char* part :
       {"step 0, rank 0: logarithm of zero or less",
        "aten::log",
        "after first, before last",
        "100 % zeros",
        "Clamp the argument"}) {
    EXPECT_THAT(text, testing::HasSubstr(part));
  }
}

} // namespace
} // namespace ampkit::diagnose
