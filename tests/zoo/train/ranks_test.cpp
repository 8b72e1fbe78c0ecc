// Trainer on several ranks, which are threads here: the same training as in one
// process on the whole batches.

#include <ampkit/dist/spawn_threads.h>
#include <ampkit/zoo/train/trainer.h>

#include <mutex>

#include <ATen/Parallel.h>

#include "support/errors.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

using dist::Context;
using dist::spawn_threads;

/// Of one process, or of one rank.
struct Trained {
  std::vector<at::Tensor> weights;
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  io::StateDict state;
  StopReason reason = StopReason::finished;
};

struct Training {
  RunConfig config = fp32();
  TrainingData data = quadrants();
  std::function<Model()> make = linear_model;
  /// A state to go on from, and when to be asked to stop; 0: never.
  std::optional<io::StateDict> from;
  int64_t stop_at = 0;
  int stops = 0; // the rank that is asked

  static RunConfig fp32() {
    auto config = small_config();
    config.precision.preset = "fp32";
    config.optimizer.name = "sgd";
    config.optimizer.lr = 0.1;
    return config;
  }

  Trained run(std::optional<Context> context, const Model& model) const {
    Trained result;
    Trainer trainer(config, model, data, context);
    if (from) {
      trainer.load_state_dict(*from);
    }
    result.reason = trainer.run(
        {.on_step = [&](const auto& r) { result.steps.push_back(r); },
         .on_eval = [&](const auto& r) { result.evals.push_back(r); },
         .should_stop =
             [&] {
               return (!context || context->rank() == stops) && stop_at > 0 &&
                      trainer.step() >= stop_at;
             }});
    for (const auto& parameter : model.module->parameters()) {
      result.weights.push_back(parameter.detach().clone());
    }
    result.state = frozen(trainer.state_dict());
    return result;
  }

  Trained alone() const { return run(std::nullopt, make()); }

  std::vector<Trained> on(int ranks) const {
    std::vector<Model> models; // here: they are seeded by the shared generator
    for (int rank = 0; rank < ranks; ++rank) {
      models.push_back(make());
    }
    std::vector<Trained> results(models.size());
    spawn_threads(ranks, [&](const Context& context) {
      const auto rank = static_cast<size_t>(context.rank());
      results[rank] = run(context, models[rank]);
    });
    return results;
  }
};

double distance(const Trained& a, const Trained& b) {
  double largest = 0;
  for (size_t i = 0; i < a.weights.size(); ++i) {
    const auto difference = (a.weights[i] - b.weights[i]).abs().max();
    largest = std::max(largest, difference.item<double>());
  }
  return largest;
}

void expect_same(const Trained& found, const Trained& expected, double limit) {
  EXPECT_LE(distance(found, expected), limit);
  ASSERT_EQ(found.steps.size(), expected.steps.size());
  for (size_t i = 0; i < found.steps.size(); ++i) {
    EXPECT_NEAR(found.steps[i].loss, expected.steps[i].loss, limit) << i;
    EXPECT_NEAR(
        found.steps[i].grad_norm, expected.steps[i].grad_norm, 10 * limit);
  }
  ASSERT_EQ(found.evals.size(), expected.evals.size());
  for (size_t i = 0; i < found.evals.size(); ++i) {
    EXPECT_EQ(found.evals[i].samples, expected.evals[i].samples);
    EXPECT_EQ(found.evals[i].accuracy, expected.evals[i].accuracy);
    EXPECT_NEAR(found.evals[i].loss, expected.evals[i].loss, limit);
  }
}

// Batches of 4 on 2 and 3 ranks, and a last one of 2, of which the third rank
// has none.
TEST(RanksTest, WeightsLossesAndMetricsAreThoseOfOneProcess) {
  const Training training;
  const auto expected = training.alone();
  ASSERT_EQ(expected.steps.size(), 16);
  for (const int ranks : {2, 3, 4}) {
    const auto found = training.on(ranks);
    for (const auto& rank : found) {
      expect_same(rank, expected, 1e-6);
      EXPECT_EQ(distance(rank, found[0]), 0);
    }
  }
}

TEST(RanksTest, EpochWhoseLastBatchIsSmallerThanTheRanksCountsEachImageOnce) {
  Training training;
  training.data = quadrants(13, 5); // the last batch: 1 image
  training.config.data.eval_batch_size = 1;
  const auto expected = training.alone();
  expect_same(training.on(4)[3], expected, 1e-6);
}

// Windows of 3 batches; the last of an epoch has 2, of 4 and 2 images.
TEST(RanksTest, AccumulationCountsTheSamplesOfAllRanks) {
  Training training;
  training.config.train.accumulate = 3;
  const auto expected = training.alone();
  for (const int ranks : {2, 3}) {
    expect_same(training.on(ranks)[1], expected, 1e-6);
  }
}

TEST(RanksTest, LossScaleAndAveragedWeightsAreThoseOfOneProcess) {
  Training training;
  training.config.precision.preset = "fp16-mixed";
  training.config.precision.init_scale = 0x1p40; // overflows at first
  training.config.precision.backoff_factor = 0x1p-10;
  training.config.optimizer.max_norm = 0.5;
  training.config.train.ema_decay = 0.5;
  const auto expected = training.alone();
  const auto found = training.on(2);
  EXPECT_GT(expected.steps.back().skipped_total, 0);
  for (const auto& rank : found) {
    ASSERT_EQ(rank.steps.size(), expected.steps.size());
    for (size_t i = 0; i < rank.steps.size(); ++i) {
      EXPECT_EQ(rank.steps[i].skipped, expected.steps[i].skipped);
      EXPECT_EQ(rank.steps[i].scale, expected.steps[i].scale);
    }
    EXPECT_LE(distance(rank, expected), 2e-3); // FP16: 2^-10 of a value below 2
    EXPECT_EQ(difference(rank.state, found[0].state), "");
  }
}

TEST(RanksTest, BatchNormsOfAllRanksEndInRank0sStatistics) {
  Training training;
  training.config.train.epochs = 1;
  training.config.data.batch_size = 8;
  training.data = quadrants(32);
  training.make = [&] { return make_model(training.config, training.data); };
  const auto found = training.on(2);
  EXPECT_EQ(distance(found[1], found[0]), 0);
  EXPECT_EQ(found[1].evals[0].loss, found[0].evals[0].loss);
}

TEST(RanksTest, StoppedRunGoesOnAtAnotherNumberOfRanks) {
  Training training;
  const auto expected = training.alone();
  training.stop_at = 5;
  training.stops = 1; // rank 0 hears of it from the others
  const auto stopped = training.on(3);
  for (const auto& rank : stopped) {
    EXPECT_EQ(rank.reason, StopReason::stopped);
    EXPECT_EQ(rank.steps.size(), 6); // a step after rank 1 was asked
  }
  training.stop_at = 0;
  training.from = stopped[0].state;
  EXPECT_LE(distance(training.alone(), expected), 1e-6);
  for (const auto& rank : training.on(2)) {
    EXPECT_EQ(rank.steps.front().step, 7);
    EXPECT_LE(distance(rank, expected), 1e-6);
  }
}

// With dropout, whose random numbers must be each rank's own.
TEST(RanksTest, ResumedAtTheSameNumberOfRanksEndsInTheSameBits) {
  Training training;
  training.make = [] {
    torch::manual_seed(3);
    auto net = torch::nn::Sequential(
        torch::nn::Flatten(),
        torch::nn::Linear(64, 8),
        torch::nn::Dropout(0.5),
        torch::nn::Linear(8, 4));
    return Model{net.ptr(), [net](const at::Tensor& x) mutable {
                   return net->forward(x);
                 }};
  };
  const auto expected = training.on(2);
  training.stop_at = 5;
  const auto stopped = training.on(2);
  training.stop_at = 0;
  training.from = stopped[0].state;
  EXPECT_EQ(distance(training.on(2)[0], expected[0]), 0);
}

TEST(RanksTest, WhatSeveralRanksCannotDoIsNamed) {
  Training training;
  training.config.data.batch_size = 2;
  EXPECT_ERROR(
      training.on(3), c10::Error, "data.batch_size: 3 ranks share", "got 2");
  training.config = small_config();
  training.config.precision.preset = "bf16-master";
  training.config.train.accumulate = 2;
  EXPECT_ERROR(
      training.on(2), c10::Error, "train.accumulate: several ranks", "16 bits");
}

} // namespace
} // namespace ampkit::zoo
