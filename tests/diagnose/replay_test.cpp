#include <ampkit/diagnose/replay.h>

#include <ampkit/diagnose/capsule.h>

#include "diagnose/recorded_run.h"
#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

using ::testing::HasSubstr;

class ReplayTest : public ::testing::Test {
 protected:
  std::string folder() const { return folder_.path() + "/capsules"; }

  std::unique_ptr<CapsuleRecorder> recorder(const RecordedRun& run) const {
    return std::make_unique<CapsuleRecorder>(
        folder(), *run.net, [&run] { return run.state_dict(); });
  }

  // Steps 0 to 4, the last of which has a NaN in it.
  void save_bad_step(RecordedRun& run) const {
    const auto capsules = recorder(run);
    run.before = [&](int64_t step) {
      run.features = step == 4 ? logarithm : unchanged;
    };
    run.train(*capsules, 0, 5);
  }

 private:
  io::TemporaryFolder folder_;
};

// fp16 overflows where the weights are too large; what made them so is to
// blame.
TEST_F(ReplayTest, WeightsThatBlewUpAreTheOptimizers) {
  RecordedRun first;
  const auto capsules = recorder(first);
  first.before = [&](int64_t step) {
    if (step == 2) {
      for (auto& group : first.optimizer.param_groups()) {
        group.options().set_lr(1e6);
      }
    }
  };
  first.train(*capsules, 0, 5);
  const auto capsule = load_capsule(folder());
  EXPECT_EQ(capsule.step, 3);
  RecordedRun second;
  const auto done = replay(capsule, *second.net, second.callbacks());
  ASSERT_TRUE(done.finding.has_value());
  EXPECT_EQ(done.finding->verdict, Verdict::optimizer);
  EXPECT_TRUE(second.net->named_parameters().contains(done.finding->parameter));
}

TEST_F(ReplayTest, ReplayThatDiffersSaysInWhat) {
  RecordedRun first;
  const auto capsules = recorder(first);
  capsules->ask();
  first.train(*capsules, 0, 1);
  auto capsule = load_capsule(folder());
  capsule.state.tensor("model.fc.bias").add_(1);
  capsule.torch_version = "1.0";
  RecordedRun second;
  const auto done = replay(capsule, *second.net, second.callbacks());
  EXPECT_FALSE(done.identical);
  EXPECT_THAT(done.differences.front(), HasSubstr("loss "));
  EXPECT_THAT(done.differences.back(), HasSubstr("then 1.0"));
  EXPECT_THAT(describe_outcome(done), HasSubstr("differs: loss "));
}

TEST_F(ReplayTest, ReplayLeavesTheProcessAsItWas) {
  RecordedRun first;
  save_bad_step(first);
  auto capsule = load_capsule(folder());
  const int threads = at::get_num_threads();
  capsule.threads = threads + 1;
  RecordedRun second;
  int within = 0;
  auto callbacks = second.callbacks();
  callbacks.run = [&, run = callbacks.run](auto& step, const auto& batches) {
    within = at::get_num_threads();
    return run(step, batches);
  };
  const auto random = io::rng_state().tensor("cpu").clone();
  replay(capsule, *second.net, callbacks);
  EXPECT_EQ(within, threads + 1);
  EXPECT_EQ(at::get_num_threads(), threads);
  EXPECT_TRUE(at::equal(random, io::rng_state().tensor("cpu")));
}

} // namespace
} // namespace ampkit::diagnose
