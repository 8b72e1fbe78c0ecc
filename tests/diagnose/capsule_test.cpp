#include <ampkit/diagnose/capsule.h>

#include <cmath>
#include <filesystem>
#include <random>

#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>

#include "diagnose/recorded_run.h"
#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using std::string_literals::operator""s;

class CapsuleTest : public ::testing::Test {
 protected:
  std::string folder() const { return folder_.path() + "/capsules"; }
  const std::string& run_folder() const { return folder_.path(); }

  CapsuleOptions options() {
    return {.on_note = [this](const auto& text) { notes.push_back(text); }};
  }

  std::unique_ptr<CapsuleRecorder> recorder(
      const RecordedRun& run, const CapsuleOptions& options) const {
    return std::make_unique<CapsuleRecorder>(
        folder(), *run.net, [&run] { return run.state_dict(); }, options);
  }

  // Steps 0 to 4, the last of which has a NaN in it.
  void save_bad_step(RecordedRun& run) {
    const auto capsules = recorder(run, options());
    run.before = [&](int64_t step) {
      run.features = step == 4 ? logarithm : unchanged;
    };
    run.train(*capsules, 0, 5);
    ASSERT_EQ(capsules->saved(), 1);
  }

  std::vector<int64_t> saved_steps() const {
    std::vector<int64_t> steps;
    for (const auto& path : find_capsules(folder())) {
      steps.push_back(load_capsule(path).step);
    }
    return steps;
  }

  std::vector<std::string> notes;

 private:
  io::TemporaryFolder folder_;
};

TEST_F(CapsuleTest, BadStepReplaysToTheSameBits) {
  RecordedRun first;
  first.micro_batches = 2;
  save_bad_step(first);
  const auto expected = results_of(first);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("step 4 saved (its loss is")));

  const auto capsule = load_capsule(folder());
  EXPECT_EQ(capsule.step, 4);
  EXPECT_EQ(capsule.reason, CapsuleReason::bad_loss);
  EXPECT_THAT(capsule.batches, SizeIs(2));
  EXPECT_TRUE(std::isnan(capsule.loss.item<double>()));
  EXPECT_THAT(capsule.outcome, HasSubstr("skipped"));

  RecordedRun second(77); // other weights, other random numbers
  second.features = logarithm;
  const auto done = replay(capsule, *second.net, second.callbacks());
  EXPECT_TRUE(done.identical) << describe_outcome(done);
  EXPECT_THAT(done.differences, IsEmpty());
  const auto found = results_of(second);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i].isnan(), expected[i].isnan())) << i;
    EXPECT_TRUE(at::equal(found[i].nan_to_num(), expected[i].nan_to_num()))
        << i;
  }
  ASSERT_TRUE(done.finding.has_value());
  EXPECT_EQ(done.finding->verdict, Verdict::logarithm);
  EXPECT_EQ(done.finding->op, "aten::log");
  EXPECT_EQ(done.finding->step, 4);
}

// Dropout, batch norm statistics and Adam's moments all have to be right for
// the loss and norm of a healthy step to come back.
TEST_F(CapsuleTest, StepThatWasAskedForReplaysToTheSameBits) {
  RecordedRun first;
  const auto capsules = recorder(first, options());
  first.train(*capsules, 0, 3);
  capsules->ask();
  first.train(*capsules, 3, 4);
  const auto expected = results_of(first);
  first.train(*capsules, 4, 6);
  EXPECT_EQ(capsules->saved(), 1);

  RecordedRun second(5);
  const auto capsule = load_capsule(folder());
  EXPECT_EQ(capsule.step, 3);
  EXPECT_EQ(capsule.reason, CapsuleReason::asked);
  const auto done = replay(capsule, *second.net, second.callbacks());
  EXPECT_TRUE(done.identical) << describe_outcome(done);
  EXPECT_GT(done.grad_norm, 0);
  EXPECT_EQ(done.outcome, "stepped");
  EXPECT_FALSE(done.finding.has_value());
  const auto found = results_of(second);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
  }
}

TEST_F(CapsuleTest, FirstBadLossOfARowIsSaved) {
  RecordedRun run;
  const auto capsules = recorder(run, options());
  run.before = [&](int64_t step) {
    run.features = step == 2 || step == 3 || step == 5 ? logarithm : unchanged;
  };
  run.train(*capsules, 0, 7);
  EXPECT_THAT(saved_steps(), ElementsAre(2, 5));
}

TEST_F(CapsuleTest, SoManiethSkipInARowIsSaved) {
  RecordedRun run;
  auto settings = options();
  settings.skips = 3;
  const auto capsules = recorder(run, settings);
  // The loss is finite, the scaled gradients are not.
  run.before = [&](int64_t step) {
    if (step >= 1) {
      run.scaler.update(1e30);
    }
  };
  run.scaler =
      GradScaler(GradScalerOptions{.init_scale = 1024, .max_scale = 1e38});
  run.train(*capsules, 0, 7);
  EXPECT_THAT(saved_steps(), ElementsAre(3));
  EXPECT_EQ(load_capsule(folder()).reason, CapsuleReason::skips);
  EXPECT_FALSE(std::isnan(load_capsule(folder()).loss.item<double>()));
}

TEST_F(CapsuleTest, LatestAreKept) {
  RecordedRun run;
  auto settings = options();
  settings.keep_last = 2;
  const auto capsules = recorder(run, settings);
  run.before = [&](int64_t step) {
    run.features = step % 2 == 1 ? logarithm : unchanged;
  };
  run.train(*capsules, 0, 8);
  EXPECT_EQ(capsules->saved(), 4);
  EXPECT_THAT(saved_steps(), ElementsAre(5, 7));
}

TEST_F(CapsuleTest, SizeOfAllIsBounded) {
  RecordedRun run;
  save_bad_step(run);
  const auto size =
      static_cast<int64_t>(fs::file_size(find_capsules(folder()).front()));
  auto settings = options();
  settings.max_bytes = 5 * size / 2;
  const auto capsules = recorder(run, settings);
  run.before = [&](int64_t step) {
    run.features = step % 2 == 1 ? logarithm : unchanged;
  };
  run.train(*capsules, 6, 14);
  EXPECT_THAT(saved_steps(), SizeIs(2));
  int64_t all = 0;
  for (const auto& path : find_capsules(folder())) {
    all += static_cast<int64_t>(fs::file_size(path));
  }
  EXPECT_LE(all, settings.max_bytes);
}

TEST_F(CapsuleTest, WhatIsTooLargeIsNotSavedAndSaid) {
  RecordedRun run;
  auto settings = options();
  settings.max_bytes = 1000;
  const auto capsules = recorder(run, settings);
  run.features = logarithm;
  run.train(*capsules, 0, 1);
  EXPECT_EQ(capsules->saved(), 0);
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_THAT(
      notes, ElementsAre(HasSubstr("more than the 1000 that capsules may")));
}

TEST_F(CapsuleTest, FullDiskEndsNoRun) {
  RecordedRun run;
  const auto capsules = recorder(run, options());
  run.features = logarithm;
  {
    const io::FileSizeLimit limit(2000);
    run.train(*capsules, 0, 1);
  }
  EXPECT_EQ(capsules->saved(), 0);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("step 0 could not be saved: ")));
  EXPECT_THAT(find_capsules(folder()), IsEmpty());
}

TEST_F(CapsuleTest, LossOfAStepThatWasTakenIsTooLate) {
  RecordedRun run;
  const auto capsules = recorder(run, options());
  capsules->begin(0);
  const auto path =
      capsules->end(torch::full({}, NAN), StepResult::of(/*stepped=*/true));
  EXPECT_FALSE(path.has_value());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("yet the optimizer stepped")));
}

TEST_F(CapsuleTest, LoopWithoutScalerAsksBeforeItsStep) {
  SmallConvNet net;
  CapsuleRecorder capsules(
      folder(), net, [&] { return io::module_state(net); }, options());
  const auto batch = RecordedRun::batch(0);
  const auto pass = [&](const io::StateDict& tensors) {
    net.features = logarithm;
    const auto loss = net.forward(tensors.tensor("image")).sum();
    loss.backward();
    return loss;
  };
  capsules.begin(9);
  capsules.batch(batch);
  const auto path = capsules.end(pass(batch));
  ASSERT_TRUE(path.has_value());
  const auto capsule = load_capsule(*path);
  EXPECT_EQ(capsule.outcome, "");
  const auto done = replay(
      capsule,
      net,
      {.restore =
           [&](const auto& state) {
             io::StateDict weights; // without the generators
             for (const auto& [name, value] : state.entries()) {
               if (!name.starts_with("rng.")) {
                 weights.set(name, value);
               }
             }
             io::load_module_state(net, weights);
           },
       .run =
           [&](Watch::Step&, const auto& batches) {
             return ReplayedStep{pass(batches.front()), std::nullopt};
           }});
  EXPECT_TRUE(done.identical);
  ASSERT_TRUE(done.finding.has_value());
  EXPECT_EQ(done.finding->op, "aten::log");
}

TEST_F(CapsuleTest, RunThatGoesBackReplacesLaterOnes) {
  RecordedRun run;
  const auto capsules = recorder(run, options());
  run.features = logarithm;
  run.train(*capsules, 8, 9);
  run.features = unchanged;
  run.train(*capsules, 4, 5);
  run.features = logarithm;
  run.train(*capsules, 5, 6);
  EXPECT_THAT(saved_steps(), ElementsAre(5));
}

TEST_F(CapsuleTest, TextsComeBack) {
  RecordedRun run;
  auto settings = options();
  settings.config = "model = \"conv\"\n";
  settings.policy = "[ops]\n";
  settings.faults = "nan at=fc step=3";
  settings.rank = 2;
  settings.world_size = 4;
  const auto capsules = recorder(run, settings);
  run.features = logarithm;
  run.train(*capsules, 0, 1);
  const auto capsule = load_capsule(run_folder()); // of the run
  EXPECT_EQ(capsule.config, settings.config);
  EXPECT_EQ(capsule.policy, settings.policy);
  EXPECT_EQ(capsule.faults, settings.faults);
  EXPECT_EQ(capsule.rank, 2);
  EXPECT_EQ(capsule.world_size, 4);
  EXPECT_THAT(capsule.torch_version, HasSubstr("2."));
  EXPECT_EQ(capsule.threads, at::get_num_threads());
}

TEST_F(CapsuleTest, WhatIsNoCapsuleIsAnError) {
  EXPECT_ERROR(
      load_capsule(folder()), CheckpointError, folder(), "is not there"s);
  EXPECT_ERROR(
      load_capsule(run_folder()),
      CheckpointError,
      run_folder(),
      "has no capsule"s);
  const auto other = run_folder() + "/other.safetensors";
  io::save_checkpoint(other, RecordedRun::batch(0));
  EXPECT_ERROR(load_capsule(other), CheckpointError, other, "is no capsule"s);
  auto state = RecordedRun::batch(0);
  state.set("capsule.format", 2);
  io::save_checkpoint(other, state);
  EXPECT_ERROR(load_capsule(other), CheckpointError, other, "format 2"s);
  state.set("capsule.format", 1);
  io::save_checkpoint(other, state);
  EXPECT_ERROR(
      load_capsule(other),
      CheckpointError,
      other,
      "no whole capsule"s,
      "'step'"s);
}

TEST_F(CapsuleTest, DamageIsAnErrorThatNamesTheFile) {
  RecordedRun run;
  save_bad_step(run);
  const auto path = find_capsules(folder()).front();
  const auto content = io::read_text(path);
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) {
    const auto bad = io::damaged(content, random);
    if (bad != content) {
      io::write_text(path, bad);
      EXPECT_ERROR(load_capsule(path), CheckpointError, path);
    }
  }
}

TEST_F(CapsuleTest, WrongCallsAreErrors) {
  RecordedRun run;
  const auto with = [&](const CapsuleOptions& bad) { recorder(run, bad); };
  EXPECT_ERROR(with({.keep_last = 0}), c10::ValueError, "keep_last", "got 0");
  EXPECT_ERROR(with({.skips = -1}), c10::ValueError, "skips", "got -1");
  EXPECT_ERROR(with({.max_bytes = 0}), c10::ValueError, "max_bytes", "got 0");
  EXPECT_ERROR(with({.rank = -1}), c10::ValueError, "rank", "got -1");
  EXPECT_ERROR(
      with({.rank = 2, .world_size = 2}), c10::ValueError, "world_size");
  const auto capsules = recorder(run, options());
  EXPECT_ERROR(capsules->begin(-1), c10::ValueError, "got -1");
  EXPECT_ERROR(
      capsules->end(torch::zeros({})), c10::Error, "no step was begun");
  EXPECT_ERROR(
      replay(Capsule{}, *run.net, run.callbacks(), {.interval = 2}),
      c10::ValueError,
      "interval",
      "got 2");
  EXPECT_ERROR(
      replay(Capsule{}, *run.net, {}), c10::ValueError, "restore and run");
}

} // namespace
} // namespace ampkit::diagnose
