#include <ampkit/zoo/train/capsule_run.h>

#include <cmath>
#include <filesystem>

#include <ATen/Parallel.h>
#include <ampkit/diagnose/capsule.h>
#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>

#include "io/temporary_folder.h"
#include "support/errors.h"
#include "train/diagnosis.h"
#include "zoo/train/quadrants.h"

namespace ampkit::zoo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using std::string_literals::operator""s;

class CapsuleRunTest : public ::testing::Test {
 protected:
  CapsuleRunTest() { at::set_num_threads(1); }
  ~CapsuleRunTest() override { at::set_num_threads(threads_); }

  std::string folder() const { return folder_.path() + "/capsules"; }

  TrainerEvents events() {
    return {
        .on_step = [this](const auto& r) { records.push_back(r); },
        .capsule_folder = folder(),
        .on_note = [this](const auto& text) { notes.push_back(text); }};
  }

  // Trains until it ends or throws.
  void train(const RunConfig& config, TrainerEvents to) {
    const auto data = quadrants();
    Trainer trainer(config, make_model(config, data), data);
    trainer.run(to);
  }

  std::vector<StepRecord> records;
  std::vector<std::string> notes;

 private:
  io::TemporaryFolder folder_;
  int threads_ = at::get_num_threads();
};

RunConfig with_fault(const std::string& fault) {
  auto config = small_config();
  config.diagnose.inject = fault;
  return config;
}

TEST_F(CapsuleRunTest, BadStepIsSavedAndReplaysToTheSameBits) {
  auto config = with_fault("overflow at=layer2 step=5");
  config.train.accumulate = 2;
  config.train.ema_decay = 0.9;
  config.precision.policy = "cv";
  train(config, events());
  ASSERT_EQ(records.size(), 8U);
  EXPECT_TRUE(std::isnan(records[4].loss));
  EXPECT_TRUE(records[4].fault);
  EXPECT_FALSE(records[5].skipped);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("step 5 saved")));

  auto run = open_capsule(diagnose::load_capsule(folder()));
  EXPECT_EQ(run.capsule.step, 5);
  EXPECT_EQ(run.batches.size(), 2U);
  EXPECT_EQ(run.trainer->policy(), PrecisionPolicy::preset("cv"));
  const auto done = replay(run);
  EXPECT_TRUE(done.identical) << describe_outcome(done);
  ASSERT_TRUE(done.finding.has_value());
  EXPECT_THAT(done.finding->module, HasSubstr("layer2"));
  EXPECT_EQ(done.finding->step, 5);
}

// The norm of the gradients has every bit of the step in it.
TEST_F(CapsuleRunTest, HealthyStepReplaysToTheSameBits) {
  for (const std::string preset :
       {"fp32", "fp16-mixed", "bf16-mixed", "fp16-master", "bf16-true"}) {
    auto config = small_config();
    config.precision.preset = preset;
    config.train.epochs = 1;
    auto to = events();
    int asked = 0;
    to.should_capture = [&] { return ++asked == 4; };
    records.clear();
    train(config, to);
    auto run = open_capsule(diagnose::load_capsule(folder()));
    EXPECT_EQ(run.capsule.step, 4);
    EXPECT_EQ(run.capsule.reason, diagnose::CapsuleReason::asked);
    const auto done = replay(run);
    EXPECT_TRUE(done.identical) << preset << ": " << describe_outcome(done);
    EXPECT_EQ(done.grad_norm, records[3].grad_norm);
    EXPECT_EQ(done.loss.item<double>(), records[3].loss);
    EXPECT_FALSE(done.finding.has_value()) << to_string(*done.finding);
    std::filesystem::remove_all(folder());
  }
}

TEST_F(CapsuleRunTest, EveryKindOfFaultIsFoundWhereItWasPlanted) {
  for (const std::string kind : {"nan", "inf", "overflow"}) {
    train(with_fault(kind + " at=layer1 step=2"), events());
    auto run = open_capsule(diagnose::load_capsule(folder()));
    const auto done = replay(run);
    EXPECT_TRUE(done.identical) << kind << describe_outcome(done);
    ASSERT_TRUE(done.finding.has_value()) << kind;
    EXPECT_THAT(done.finding->module, HasSubstr("layer1")) << kind;
    EXPECT_EQ(done.finding->direction, diagnose::Direction::forward);
    std::filesystem::remove_all(folder());
  }
}

TEST_F(CapsuleRunTest, SkipsInARowAreSavedAndHandled) {
  auto config = small_config();
  config.precision.init_scale = 1e30;
  config.diagnose.capsule_skips = 3;
  train(config, events());
  auto run = open_capsule(diagnose::load_capsule(folder()));
  EXPECT_EQ(run.capsule.step, 3);
  EXPECT_EQ(run.capsule.reason, diagnose::CapsuleReason::skips);
  const auto done = replay(run);
  EXPECT_TRUE(done.identical) << describe_outcome(done);
  EXPECT_FALSE(done.finding.has_value());
  EXPECT_EQ(done.handled_overflows, 1);
}

// Batch norms average what they see, also of a step that is skipped.
TEST_F(CapsuleRunTest, BadLossLeavesTheRunningStatisticsAsTheyWere) {
  auto config = with_fault("nan at=layer1 step=2");
  config.train.steps = 2;
  const auto data = quadrants();
  const auto model = make_model(config, data);
  Trainer trainer(config, model, data);
  std::vector<at::Tensor> before;
  auto to = events();
  to.on_phase = [&](int64_t step, const char* phase) {
    // Not in step 2, where the fault would hit the copies.
    if (step == 1 && phase == "update"s) {
      for (const auto& buffer : model.module->buffers()) {
        before.push_back(buffer.clone());
      }
    }
  };
  trainer.run(to);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_TRUE(std::isnan(records[1].loss));
  const auto after = model.module->buffers();
  ASSERT_EQ(after.size(), before.size());
  ASSERT_GT(after.size(), 10U);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(at::equal(after[i], before[i])) << i;
  }
  EXPECT_TRUE(std::isfinite(trainer.evaluate().loss));
}

TEST_F(CapsuleRunTest, NothingIsKeptUnlessWanted) {
  auto config = with_fault("nan at=layer1 step=2");
  config.diagnose.capsules = 0;
  train(config, events());
  EXPECT_FALSE(std::filesystem::exists(folder()));
  EXPECT_THAT(notes, IsEmpty());
  config.diagnose.capsules = 1;
  train(config, {}); // no folder
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(CapsuleRunTest, SavingChangesNoBitOfTheRun) {
  const auto final_losses = [&](bool saving) {
    records.clear();
    auto to = events();
    to.should_capture = [&] { return saving; };
    to.capsule_folder = saving ? folder() : "";
    train(small_config(), to);
    std::vector<double> losses;
    for (const auto& record : records) {
      losses.push_back(record.loss);
    }
    return losses;
  };
  EXPECT_EQ(final_losses(true), final_losses(false));
}

TEST_F(CapsuleRunTest, OverridesGiveTheSameWeightsInAnotherPrecision) {
  train(with_fault("nan at=layer1 step=2"), events());
  auto run = open_capsule(
      diagnose::load_capsule(folder()), {"precision.preset=bf16-true"});
  restore_model(run);
  const auto weights = run.capsule.state.subset("model");
  const auto& [name, value] = weights.entries().front();
  const auto& now = run.model.module->named_parameters()[name];
  EXPECT_EQ(now.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(
      at::equal(now.detach(), std::get<at::Tensor>(value).to(at::kBFloat16)));
}

TEST_F(CapsuleRunTest, PhasesAndMaximaAreTold) {
  auto config = small_config();
  config.train.accumulate = 2;
  config.train.epochs = 1;
  std::vector<std::string> phases;
  auto to = events();
  to.on_phase = [&](int64_t step, const char* phase) {
    if (step == 2) {
      phases.emplace_back(phase);
    }
  };
  train(config, to);
  EXPECT_THAT(
      phases,
      ElementsAre("forward", "backward", "forward", "backward", "update"));
  for (const auto& record : records) {
    EXPECT_GT(record.grad_max, 0);
    EXPECT_LE(record.grad_max, record.grad_norm * (1 + 1e-6));
    EXPECT_EQ(record.bad_values, 0);
  }
}

TEST_F(CapsuleRunTest, WrongFaultsAreErrors) {
  const auto data = quadrants();
  const auto start = [&](const std::string& fault) {
    const auto config = with_fault(fault);
    Trainer(config, make_model(config, data), data);
  };
  EXPECT_ERROR(start("nann at=fc step=1"), c10::ValueError, "nann", "nan");
  EXPECT_ERROR(start("nan at=layerX step=1"), c10::ValueError, "layerX");
  EXPECT_EQ(
      planted_faults({.inject = "nan at=fc step=1; inf at=layer1 step=2;"})
          .size(),
      2U);
}

TEST_F(CapsuleRunTest, CapsuleOfAnotherProgramIsAnError) {
  diagnose::Capsule capsule{.path = "x.safetensors"};
  EXPECT_ERROR(
      open_capsule(capsule),
      CheckpointError,
      "x.safetensors",
      "was not saved by ampkit train");
}

TEST_F(CapsuleRunTest, StateThatDoesNotFitIsAnErrorThatNamesTheFile) {
  train(with_fault("nan at=layer1 step=2"), events());
  const auto path = diagnose::find_capsules(folder()).front();
  auto run =
      open_capsule(diagnose::load_capsule(path), {"optimizer.name=\"sgd\""});
  EXPECT_ERROR(replay(run), CheckpointError, path, "does not fit"s);
}

} // namespace
} // namespace ampkit::zoo
