#include <ampkit/io/checkpoint_directory.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <torch/torch.h>

#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>

#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

/// Its tensor holds the step, and so tells which checkpoint was loaded.
StateDict state_of(int64_t step, int64_t size = 4) {
  StateDict state;
  state.set("step", step);
  state.set("w", torch::full({size}, static_cast<double>(step)));
  return state;
}

std::vector<int64_t> steps(const CheckpointDirectory& directory) {
  std::vector<int64_t> result;
  for (const auto& file : directory.list()) {
    result.push_back(file.step);
  }
  return result;
}

/// Changes the last byte: one of the tensor's values.
void damage_values(const std::string& path) {
  std::string content = read_text(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_text(path, content);
}

void damage_header(const std::string& path) {
  std::string content = read_text(path);
  content[20] = static_cast<char>(content[20] ^ 1);
  write_text(path, content);
}

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/run/checkpoints";
};

TEST_F(CheckpointDirectoryTest, KeepsTheLastOnesAndTheBest) {
  CheckpointDirectory directory(path_, {.keep_last = 2});
  directory.save(1, state_of(1), 0.5);
  directory.save(2, state_of(2), 0.9);
  directory.save(3, state_of(3), 0.7);
  directory.save(4, state_of(4));
  directory.save(5, state_of(5), NAN);
  EXPECT_EQ(steps(directory), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_EQ(directory.best()->metric, 0.9);
  EXPECT_EQ(directory.load_best()->state.integer("step"), 2);
  EXPECT_EQ(directory.load_latest()->state.integer("step"), 5);
  directory.save(6, state_of(6), 0.9);
  EXPECT_EQ(steps(directory), (std::vector<int64_t>{5, 6}));
}

TEST_F(CheckpointDirectoryTest, LowestMetricCanBeTheBest) {
  CheckpointDirectory directory(
      path_, {.keep_last = 1, .best = BestMetric::kLowest});
  directory.save(1, state_of(1), 0.125);
  directory.save(2, state_of(2), -1e-300);
  directory.save(3, state_of(3), 0.1);
  EXPECT_EQ(steps(directory), (std::vector<int64_t>{2, 3}));
  // Another process sees the same.
  const CheckpointDirectory again(path_, {.best = BestMetric::kLowest});
  EXPECT_EQ(again.best()->metric, -1e-300);
}

TEST_F(CheckpointDirectoryTest, AnEmptyDirectoryHasNothingToLoad) {
  const CheckpointDirectory directory(path_);
  EXPECT_FALSE(directory.latest());
  EXPECT_FALSE(directory.best());
  EXPECT_FALSE(directory.load_latest());
  EXPECT_FALSE(directory.load_latest_intact());
  EXPECT_FALSE(directory.load_best());
}

TEST_F(CheckpointDirectoryTest, SavingAStepAgainReplacesIt) {
  CheckpointDirectory directory(path_);
  directory.save(1, state_of(1), 1.0);
  directory.save(1, state_of(7), 2.0);
  EXPECT_EQ(steps(directory), std::vector<int64_t>{1});
  EXPECT_EQ(directory.load_latest()->state.integer("step"), 7);
  EXPECT_EQ(directory.best()->metric, 2.0);
}

TEST_F(CheckpointDirectoryTest, GoingBackNeedsRemoveAfter) {
  CheckpointDirectory directory(path_);
  directory.save(10, state_of(10));
  directory.save(20, state_of(20));
  EXPECT_ERROR(
      directory.save(15, state_of(15)),
      c10::Error,
      "step 20",
      "step 15",
      "remove_after()");
  EXPECT_EQ(steps(directory), (std::vector<int64_t>{10, 20}));
  directory.remove_after(10);
  directory.save(15, state_of(15));
  EXPECT_EQ(steps(directory), (std::vector<int64_t>{10, 15}));
}

TEST_F(CheckpointDirectoryTest, OptionsAndStepsOutOfRangeAreRefused) {
  EXPECT_ERROR(
      CheckpointDirectory(path_, {.keep_last = 0}),
      c10::ValueError,
      "keep_last",
      "got 0");
  CheckpointDirectory directory(path_);
  EXPECT_ERROR(
      directory.save(-1, state_of(1)), c10::ValueError, "step", "got -1");
  write_text(folder_.path() + "/file", "");
  EXPECT_ERROR(
      CheckpointDirectory(folder_.path() + "/file/below"),
      CheckpointError,
      "cannot create",
      "/file/below");
}

TEST_F(CheckpointDirectoryTest, DamagedLatestIsAnErrorThatNamesTheWayBack) {
  CheckpointDirectory directory(path_);
  directory.save(1, state_of(1));
  damage_values(directory.save(2, state_of(2)));
  EXPECT_EQ(directory.latest()->step, 2);
  EXPECT_ERROR(
      directory.load_latest(),
      CheckpointError,
      "tensor 'w'",
      "step-000000000002",
      "load_latest_intact()");
}

TEST_F(CheckpointDirectoryTest, LatestIntactPassesOverDamageAndSaysSo) {
  CheckpointDirectory directory(path_);
  directory.save(1, state_of(1));
  damage_values(directory.save(2, state_of(2)));
  damage_header(directory.save(3, state_of(3)));
  const auto loaded = directory.load_latest_intact();
  EXPECT_EQ(loaded->state.integer("step"), 1);
  EXPECT_EQ(loaded->file.step, 1);
  ASSERT_EQ(loaded->passed_over.size(), 2U);
  EXPECT_THAT(loaded->passed_over[0], ::testing::HasSubstr("0003"));
  EXPECT_THAT(loaded->passed_over[1], ::testing::HasSubstr("tensor 'w'"));
  damage_values(loaded->file.path);
  EXPECT_ERROR(
      directory.load_latest_intact(),
      CheckpointError,
      "no checkpoint in",
      "0001",
      "0002",
      "0003");
}

TEST_F(CheckpointDirectoryTest, BestIsUnknownWhereAHeaderIsDamaged) {
  CheckpointDirectory directory(path_);
  damage_header(directory.save(1, state_of(1), 0.9));
  directory.save(2, state_of(2), 0.5);
  EXPECT_FALSE(directory.list()[0].damage.empty());
  EXPECT_ERROR(directory.best(), CheckpointError, "not known", "0001");
  EXPECT_EQ(directory.load_latest()->state.integer("step"), 2);
}

TEST_F(CheckpointDirectoryTest, LeftoversGoAndOtherFilesStay) {
  CheckpointDirectory directory(path_);
  directory.save(1, state_of(1));
  write_text(path_ + "/.step-000000000002.safetensors.tmp-1-0", "half");
  write_text(path_ + "/notes.txt", "mine");
  write_text(path_ + "/step-two.safetensors", "mine");
  EXPECT_EQ(steps(directory), std::vector<int64_t>{1});
  const CheckpointDirectory again(path_);
  EXPECT_EQ(steps(again), std::vector<int64_t>{1});
  EXPECT_FALSE(std::filesystem::exists(
      path_ + "/.step-000000000002.safetensors.tmp-1-0"));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/step-two.safetensors"));
}

TEST_F(CheckpointDirectoryTest, AFailedSaveLeavesTheOthers) {
  CheckpointDirectory directory(path_, {.keep_last = 1});
  directory.save(1, state_of(1));
  {
    const FileSizeLimit full(1'000);
    EXPECT_ERROR(
        directory.save(2, state_of(2, 10'000)), CheckpointError, "0002");
  }
  EXPECT_EQ(steps(directory), std::vector<int64_t>{1});
  EXPECT_EQ(directory.load_latest()->state.integer("step"), 1);
}

constexpr int64_t kKilledSize = 30'000; // 120 kB, several writes' time

/// Saves checkpoint after checkpoint until it is killed. Runs in a child, which
/// has only the thread that forked: no op here is large enough for a pool.
[[noreturn]] void save_for_ever(const std::string& path, int64_t step) {
  CheckpointDirectory directory(path, {.keep_last = 2});
  const auto tensor = torch::empty({kKilledSize});
  while (true) {
    ++step;
    tensor.fill_(static_cast<double>(step));
    StateDict state;
    state.set("step", step);
    state.set("w", tensor);
    directory.save(step, state, 1.0 / static_cast<double>(step));
  }
}

void run_and_kill(const std::string& path, int64_t step, int microseconds) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    save_for_ever(path, step);
  }
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
}

bool has_temporary_file(const std::string& path) {
  const std::filesystem::directory_iterator files(path);
  return std::any_of(begin(files), end(files), [](const auto& file) {
    return file.path().filename().string().starts_with('.');
  });
}

// 20 kills, 200 with AMPKIT_TEST_LONG=1. A loadable latest checkpoint always
// exists, no fallback needed, and what the killed writer left is removed.
TEST_F(CheckpointDirectoryTest, KilledWritersLeaveALoadableLatestCheckpoint) {
  CheckpointDirectory(path_).save(1, state_of(1, kKilledSize));
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> pause(500, 40'000);
  int64_t last = 1;
  int torn = 0;
  for (int i = 0; i < (long_run() ? 200 : 20); ++i) {
    run_and_kill(path_, last, pause(random));
    torn += has_temporary_file(path_) ? 1 : 0;
    const CheckpointDirectory directory(path_, {.keep_last = 2});
    const auto loaded = directory.load_latest();
    ASSERT_TRUE(loaded);
    EXPECT_GE(loaded->file.step, last);
    last = loaded->file.step;
    EXPECT_EQ(loaded->state.integer("step"), last);
    EXPECT_TRUE(loaded->state.tensor("w").equal(
        torch::full({kKilledSize}, static_cast<double>(last))));
    for (const auto& file : directory.list()) {
      EXPECT_EQ(load_checkpoint(file.path).state.integer("step"), file.step);
    }
    for (const auto& item : std::filesystem::directory_iterator(path_)) {
      EXPECT_EQ(item.path().extension(), ".safetensors");
    }
  }
  EXPECT_GT(last, 1) << "no child lived long enough to save";
  EXPECT_GT(torn, 0) << "no child was killed while it was writing";
}

} // namespace
} // namespace ampkit::io
