#include <ampkit/zoo/train/trainer.h>

#include <cmath>
#include <limits>

#include <ATen/Parallel.h>

#include "support/errors.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

using ::testing::IsEmpty;

// Ops this small only lose by being split among threads.
class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() { at::set_num_threads(1); }
  ~TrainerTest() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

std::vector<StepRecord> records_of(Trainer& trainer) {
  std::vector<StepRecord> records;
  trainer.run({.on_step = [&](const auto& r) { records.push_back(r); }});
  return records;
}

at::Tensor weight_of(const Model& model) {
  return model.module->parameters().front().detach();
}

TEST_F(TrainerTest, LearnsInFp16) {
  auto config = small_config();
  config.train.epochs = 6;
  config.optimizer.lr = 3e-3;
  const auto data = quadrants(64);
  Trainer trainer(config, make_model(config, data), data);
  std::vector<double> accuracies;
  trainer.run(
      {.on_eval = [&](const auto& r) { accuracies.push_back(r.accuracy); }});
  EXPECT_EQ(accuracies.size(), 6U);
  EXPECT_EQ(accuracies.back(), 1.0);
}

TEST_F(TrainerTest, RecordsEachStep) {
  const auto config = small_config();
  const auto data = quadrants();
  Trainer trainer(config, linear_model(), data);
  EXPECT_EQ(trainer.total_steps(), 16);
  const auto records = records_of(trainer);
  ASSERT_EQ(records.size(), 16U);
  for (size_t i = 0; i < records.size(); ++i) {
    const auto& r = records[i];
    EXPECT_EQ(r.step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(r.epoch, i < 8 ? 1 : 2);
    EXPECT_EQ(r.learning_rate, config.optimizer.lr);
    EXPECT_EQ(r.scale, 1024);
    EXPECT_GT(r.loss, 0);
    EXPECT_GT(r.grad_norm, 0);
    EXPECT_GT(r.samples_per_second, 0);
    EXPECT_GT(r.memory_mb, 10);
    EXPECT_FALSE(r.skipped);
  }
  EXPECT_LT(records.back().loss, records.front().loss);
}

// 30 images: windows of 12, 12 and 6, the last from batches of 4 and 2.
TEST_F(TrainerTest, AccumulationEqualsTheBigBatchInPartialWindowsToo) {
  auto config = small_config();
  config.precision.preset = "fp32";
  config.optimizer.name = "sgd";
  config.optimizer.lr = 0.5;
  const auto data = quadrants();
  config.train.accumulate = 3;
  const auto accumulated = linear_model();
  Trainer first(config, accumulated, data);
  const auto small = records_of(first);
  config.train.accumulate = 1;
  config.data.batch_size = 12;
  const auto whole = linear_model();
  Trainer second(config, whole, data);
  const auto big = records_of(second);

  ASSERT_EQ(small.size(), 6U);
  ASSERT_EQ(big.size(), 6U);
  for (size_t i = 0; i < big.size(); ++i) {
    EXPECT_NEAR(small[i].loss, big[i].loss, 1e-5);
    EXPECT_NEAR(small[i].grad_norm, big[i].grad_norm, 1e-4);
  }
  EXPECT_TRUE(weight_of(accumulated).allclose(weight_of(whole), 1e-5, 1e-6));
}

TEST_F(TrainerTest, ClippingBoundsTheUpdate) {
  auto config = small_config();
  config.precision.preset = "fp32";
  config.optimizer.name = "sgd";
  config.optimizer.momentum = 0;
  config.optimizer.weight_decay = 0;
  config.optimizer.lr = 1;
  config.optimizer.max_norm = 1e-3;
  config.train.steps = 1;
  const auto model = linear_model();
  const auto before = weight_of(model).clone();
  Trainer trainer(config, model, quadrants());
  const auto records = records_of(trainer);
  EXPECT_GT(records.at(0).grad_norm, 0.1); // as it was before clipping
  const auto moved = (weight_of(model) - before).norm().item<double>();
  EXPECT_GT(moved, 1e-4);
  EXPECT_LT(moved, 1.001e-3);
}

TEST_F(TrainerTest, OverflowSkipsTheStepAndHoldsTheSchedule) {
  auto config = small_config();
  config.precision.init_scale = 0x1p100;
  config.precision.backoff_factor = 0x1p-90;
  config.schedule.name = "linear";
  const auto model = linear_model();
  Trainer trainer(config, model, quadrants());
  const auto records = records_of(trainer);
  EXPECT_TRUE(records.at(0).skipped);
  EXPECT_EQ(records.at(0).scale, 0x1p100);
  EXPECT_EQ(records.at(0).nan_rate, 1.0);
  EXPECT_FALSE(records.at(1).skipped);
  EXPECT_EQ(records.at(1).scale, 0x1p10);
  EXPECT_EQ(records.at(1).learning_rate, records.at(0).learning_rate);
  EXPECT_LT(records.at(2).learning_rate, records.at(1).learning_rate);
  EXPECT_EQ(records.back().skipped_total, 1);
  EXPECT_TRUE(weight_of(model).isfinite().all().item<bool>());
}

TEST_F(TrainerTest, NanLossIsAFaultThatLeavesTheScaleAndIsRecorded) {
  for (const std::string preset : {"fp16-mixed", "bf16-mixed", "fp32"}) {
    auto config = small_config();
    config.precision.preset = preset;
    auto model = linear_model();
    int calls = 0;
    const auto forward = model.forward;
    model.forward = [forward, &calls](const at::Tensor& x) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      return forward(x) * (++calls == 2 ? nan : 1.0);
    };
    Trainer trainer(config, model, quadrants());
    const auto records = records_of(trainer);
    EXPECT_TRUE(records.at(1).skipped) << preset;
    EXPECT_TRUE(records.at(1).fault);
    EXPECT_THAT(records.at(1).why, ::testing::HasSubstr("the loss was inf"));
    EXPECT_THAT(records.at(1).why, ::testing::HasSubstr("'1.weight'"));
    EXPECT_FALSE(records.at(2).skipped);
    EXPECT_EQ(records.at(2).scale, records.at(0).scale);
    EXPECT_EQ(records.back().faults_total, 1);
    EXPECT_TRUE(weight_of(model).isfinite().all().item<bool>());
  }
}

TEST_F(TrainerTest, TenFaultsInARowEndTheRun) {
  auto model = linear_model();
  const auto forward = model.forward;
  model.forward = [forward](const at::Tensor& x) {
    return forward(x) * std::numeric_limits<double>::quiet_NaN();
  };
  Trainer trainer(small_config(), model, quadrants());
  EXPECT_ERROR(
      trainer.run(),
      c10::Error,
      "Trainer::run: the loss was not finite in 10 steps in a row",
      "step 10",
      "'1.weight'",
      "precision.max_consecutive_faults");
}

TEST_F(TrainerTest, StaticScaleAndHysteresisComeFromTheConfiguration) {
  auto config = small_config();
  config.precision.init_scale = 0x1p100; // overflows at once
  config.precision.dynamic_scale = false;
  config.train.patience = 3;
  {
    Trainer trainer(config, linear_model(), quadrants());
    EXPECT_ERROR(
        trainer.run(),
        c10::Error,
        "3 steps in a row",
        "gradients overflowed, in '1.weight'",
        "at loss scale 1.26765e+30");
  }
  config.precision.dynamic_scale = true;
  config.precision.hysteresis = 2;
  config.precision.backoff_factor = 0x1p-90;
  Trainer trainer(config, linear_model(), quadrants());
  const auto records = records_of(trainer);
  EXPECT_TRUE(records.at(0).skipped);
  EXPECT_EQ(records.at(1).scale, 0x1p100);
  EXPECT_TRUE(records.at(1).skipped);
  EXPECT_EQ(records.at(2).scale, 0x1p10);
}

TEST_F(TrainerTest, GivesUpWhenNothingIsFiniteAnyMore) {
  auto config = small_config();
  config.train.patience = 3;
  auto model = linear_model();
  const auto before = weight_of(model).clone();
  const auto forward = model.forward;
  model.forward = [forward](const at::Tensor& x) {
    return forward(x) * std::numeric_limits<double>::quiet_NaN();
  };
  Trainer trainer(config, model, quadrants());
  EXPECT_ERROR(
      trainer.run(),
      c10::Error,
      "Trainer::run: the loss or a gradient was not finite in 3 steps in a row",
      "the last of them step 3",
      "optimizer.lr");
  EXPECT_TRUE(weight_of(model).equal(before));
}

TEST_F(TrainerTest, StepsCanEndARunInTheMiddleOfAnEpoch) {
  auto config = small_config();
  config.train.steps = 11;
  int64_t evaluations = 0;
  int64_t checkpoints = 0;
  Trainer trainer(config, linear_model(), quadrants());
  EXPECT_EQ(trainer.epochs(), 2);
  const auto reason = trainer.run(
      {.on_eval = [&](const auto&) { ++evaluations; },
       .on_checkpoint =
           [&](auto accuracy) {
             EXPECT_TRUE(accuracy.has_value());
             ++checkpoints;
           }});
  EXPECT_EQ(reason, StopReason::finished);
  EXPECT_EQ(trainer.step(), 11);
  EXPECT_EQ(evaluations, 2);
  EXPECT_EQ(checkpoints, 2);
  EXPECT_TRUE(records_of(trainer).empty()); // nothing left to do
}

TEST_F(TrainerTest, CheckpointsComeEverySoManyStepsAndAtTheEndOfEpochs) {
  auto config = small_config();
  config.checkpoint.every_steps = 3;
  config.train.eval_every = 2;
  Trainer trainer(config, linear_model(), quadrants());
  std::vector<int64_t> steps;
  std::vector<bool> evaluated;
  trainer.run({.on_checkpoint = [&](auto accuracy) {
    steps.push_back(trainer.step());
    evaluated.push_back(accuracy.has_value());
  }});
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 6, 8, 9, 12, 15, 16}));
  EXPECT_EQ(evaluated, (std::vector<bool>{0, 0, 0, 0, 0, 0, 1}));
}

TEST_F(TrainerTest, AveragedWeightsAreEvaluatedAndTheOthersComeBack) {
  auto config = small_config();
  config.train.ema_decay = 0.5;
  const auto model = linear_model();
  Trainer trainer(config, model, quadrants());
  EvalRecord last;
  trainer.run({.on_eval = [&](const auto& r) { last = r; }});
  ASSERT_TRUE(last.ema_loss.has_value());
  EXPECT_NE(*last.ema_loss, last.loss);
  EXPECT_EQ(trainer.evaluate().loss, last.loss);
}

// 16-bit gradients would drift from the big batch's by their rounding.
TEST_F(TrainerTest, AccumulationWith16BitWeightsAddsUpInFp32) {
  auto config = small_config();
  config.precision.preset = "bf16-master";
  config.train.accumulate = 3;
  const auto model = linear_model();
  Trainer trainer(config, model, quadrants());
  trainer.run({.on_step = [&](const StepRecord& record) {
    EXPECT_FALSE(record.skipped);
    EXPECT_GT(record.grad_norm, 0);
  }});
  const auto weight = model.module->parameters().front();
  EXPECT_EQ(weight.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(weight.grad_dtype(), torch::kFloat);
}

// Stopped at every step in turn, in the middle and at the end of epochs.
TEST_F(TrainerTest, ResumedRunEqualsTheUninterruptedOne) {
  auto config = small_config();
  config.data.horizontal_flip = true;
  config.data.crop_padding = 1;
  config.train.ema_decay = 0.9;
  config.train.accumulate = 2;
  config.precision.growth_interval = 3;
  config.schedule.name = "one-cycle";
  config.schedule.warmup = 0.3;
  const auto data = quadrants();
  Trainer whole(config, make_model(config, data), data);
  whole.run();
  const auto expected = frozen(whole.state_dict());

  for (int64_t stop = 1; stop <= whole.total_steps(); ++stop) {
    io::StateDict saved;
    {
      Trainer first(config, make_model(config, data), data);
      const auto reason = first.run(
          {.on_checkpoint = [&](auto) { saved = frozen(first.state_dict()); },
           .should_stop = [&] { return first.step() == stop; }});
      EXPECT_EQ(reason, StopReason::stopped);
    }
    auto other_seed = config; // all that matters comes from the state
    Trainer second(other_seed, make_model(config, data), data);
    second.load_state_dict(saved);
    EXPECT_EQ(second.step(), stop);
    EXPECT_EQ(second.run(), StopReason::finished);
    EXPECT_EQ(difference(second.state_dict(), expected), "") << stop;
  }
}

TEST_F(TrainerTest, SixteenBitWeightsHaveMastersInTheState) {
  auto config = small_config();
  config.precision.preset = "fp16-master";
  const auto data = quadrants();
  const auto model = make_model(config, data);
  Trainer trainer(config, model, data);
  trainer.run();
  const auto state = trainer.state_dict();
  EXPECT_EQ(state.tensor("model.fc.weight").scalar_type(), at::kHalf);
  EXPECT_EQ(state.tensor("model.bn1.weight").scalar_type(), at::kFloat);
  EXPECT_EQ(state.tensor("model.bn1.num_batches_tracked").item<int64_t>(), 16);
  Trainer again(config, make_model(config, data), data);
  again.load_state_dict(state);
  EXPECT_EQ(difference(again.state_dict(), state), "");
}

TEST_F(TrainerTest, StateOfAnotherRunIsRefused) {
  auto config = small_config();
  const auto data = quadrants();
  const auto state = Trainer(config, linear_model(), data).state_dict();
  {
    Trainer other(config, make_model(config, data), data);
    EXPECT_ERROR(other.load_state_dict(state), c10::Error, "conv1.weight");
  }
  config.train.epochs = 3;
  {
    config.schedule.name = "cosine";
    Trainer other(config, linear_model(), data);
    EXPECT_ERROR(
        other.load_state_dict(state),
        c10::Error,
        "the state is of a SequentialLR");
  }
}

TEST_F(TrainerTest, ValuesThatDoNotGoTogetherAreNamed) {
  const auto expect = [](const RunConfig& wrong, const std::string& what) {
    EXPECT_ERROR(
        Trainer(wrong, linear_model(), quadrants()), ConfigError, what);
  };
  auto config = small_config();
  config.schedule.name = "one-cycle";
  expect(config, "schedule.warmup: one-cycle needs more than 0");
  config.schedule.warmup = 0.3;
  config.optimizer.name = "sgd";
  config.optimizer.momentum = 0;
  expect(config, "schedule.cycle_momentum: sgd without momentum");
  config = small_config();
  config.precision.consecutive_hysteresis = true;
  expect(config, "precision.consecutive_hysteresis: needs");
  config = small_config();
  config.precision.init_scale = 0.5;
  expect(config, "precision.init_scale: must be >= precision.min_scale = 1");
  config = small_config();
  config.train.device = "tpu";
  expect(config, "train.device: expected cpu or cuda, got tpu");
  if (!torch::cuda::is_available()) {
    config.train.device = "cuda:0";
    expect(config, "train.device: no CUDA device is usable, got cuda:0");
  }
}

} // namespace
} // namespace ampkit::zoo
