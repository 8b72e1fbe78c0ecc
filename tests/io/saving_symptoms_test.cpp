// What people suffer from when they save and load, by the words they use.
#include <chrono>
#include <random>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <torch/torch.h>

#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/torch_state.h>

#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

class SavingSymptoms : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/model.pt";
};

constexpr int64_t kSize = 30'000;

/// Runs in a child, which has only the thread that forked: no op here is large
/// enough for a pool.
[[noreturn]] void save_for_ever(const std::string& path) {
  StateDict state;
  state.set("w", torch::ones({kSize}));
  while (true) {
    save_torch_state(path, state);
  }
}

// 20 kills, 200 with AMPKIT_TEST_LONG=1.
TEST_F(SavingSymptoms, KillDuringSaveLeavesALoadableFile) {
  StateDict state;
  state.set("w", torch::ones({kSize}));
  save_torch_state(path_, state);
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> pause(500, 20'000);
  for (int i = 0; i < (long_run() ? 200 : 20); ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      save_for_ever(path_);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(pause(random)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    EXPECT_TRUE(to_state_dict(load_torch_state(path_))
                    .tensor("w")
                    .equal(torch::ones({kSize})));
  }
}

TEST_F(SavingSymptoms, FlippedByteInAWeightDoesNotLoadInSilence) {
  StateDict state;
  state.set("first", torch::full({100}, 1.0));
  state.set("second", torch::full({100}, 2.0));
  const std::string checkpoint = folder_.path() + "/checkpoint";
  // The byte that makes a 2 of 0x40000000.
  const auto flip = [](const std::string& path) {
    std::string content = read_text(path);
    content[content.find(std::string("\0\0\0\x40", 4)) + 3] ^= 1;
    write_text(path, content);
  };
  save_checkpoint(checkpoint, state);
  flip(checkpoint);
  EXPECT_ERROR(load_checkpoint(checkpoint), CheckpointError, "'second'");
  save_torch_state(path_, state);
  flip(path_);
  EXPECT_ERROR(load_torch_state(path_), CheckpointError, "'data/1'");
}

TEST_F(SavingSymptoms, ExtraEntriesAreNotIgnoredInSilence) {
  torch::nn::Linear layer(3, 5);
  StateDict state = module_state(*layer);
  state.set("head.weight", torch::ones({1}));
  EXPECT_ERROR(
      load_module_state(*layer, state), c10::Error, "unexpected: head.weight");
}

TEST_F(SavingSymptoms, AnotherShapeDoesNotReplaceTheWeight) {
  torch::nn::Linear layer(3, 5);
  const auto before = layer->weight.detach().clone();
  StateDict state = module_state(*torch::nn::Linear(2, 2));
  EXPECT_ERROR(
      load_module_state(*layer, state),
      c10::Error,
      "mismatched: weight is tensor Float [5, 3], the state has tensor Float "
      "[2, 2]",
      "mismatched: bias");
  EXPECT_TRUE(layer->weight.equal(before));
}

TEST_F(SavingSymptoms, MissingEntryLeavesTheOthersUnchangedToo) {
  torch::nn::Linear layer(3, 5);
  const auto before = layer->weight.detach().clone();
  StateDict state;
  state.set("weight", torch::zeros({5, 3}));
  EXPECT_ERROR(load_module_state(*layer, state), c10::Error, "missing: bias");
  EXPECT_TRUE(layer->weight.equal(before));
}

// torch::load() gives parameters new storages.
TEST_F(SavingSymptoms, LoadingDoesNotDetachAFlatBufferFromItsWeights) {
  torch::nn::Linear layer(2, 3);
  const auto flat = torch::zeros({9});
  layer->weight.set_data(flat.narrow(0, 0, 6).view({3, 2}));
  layer->bias.set_data(flat.narrow(0, 6, 3));
  StateDict state;
  state.set("weight", torch::full({3, 2}, 2.0));
  state.set("bias", torch::full({3}, 4.0));
  save_torch_state(path_, state);
  load_module_state(*layer, to_state_dict(load_torch_state(path_)));
  EXPECT_EQ(flat.sum().item<float>(), 24);
  flat.zero_();
  EXPECT_EQ(layer->weight.sum().item<float>(), 0);
}

} // namespace
} // namespace ampkit::io
