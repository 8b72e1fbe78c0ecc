#include <ampkit/io/checkpoint.h>

#include <bit>
#include <limits>

#include <torch/torch.h>

#include <ampkit/error.h>

#include "io/scalars.h"
#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

/// A little of everything that a run has.
StateDict training_state() {
  torch::manual_seed(0);
  StateDict state;
  state.set("step", int64_t{1} << 60);
  state.set("model.weight", torch::randn({5, 3}).to(torch::kHalf));
  state.set("scale", 65536.0);
  state.set("model.mask", torch::tensor({true, false, true}));
  state.set("model.empty", torch::empty({0, 2}));
  state.set("master", torch::randn({5, 3}));
  state.set("done", false);
  state.set("note", "größer \"∞\"\n");
  return state;
}

void expect_equal(const StateDict& found, const StateDict& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, value] = expected.entries()[i];
    EXPECT_EQ(found.entries()[i].first, name);
    if (std::holds_alternative<at::Tensor>(value)) {
      EXPECT_EQ(describe(found.entries()[i].second), describe(value));
      EXPECT_TRUE(found.tensor(name).equal(expected.tensor(name))) << name;
    } else {
      EXPECT_TRUE(same_scalar(found.entries()[i].second, value)) << name;
    }
  }
}

class CheckpointTest : public ::testing::Test {
 protected:
  /// Expects load_checkpoint() to name the file and this.
  void expect_damaged(const std::string& text, const std::string& what) {
    try {
      load_checkpoint(path_);
      ADD_FAILURE() << "accepted with " << what;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.msg(), ::testing::HasSubstr(path_)) << what;
      EXPECT_THAT(error.msg(), ::testing::HasSubstr(text)) << what;
    }
  }

  /// The tensor that has this byte of the file, or "header" for none.
  std::string owner_of(size_t byte) const {
    for (const auto& info : tensors_) {
      if (byte >= info.offset && byte < info.offset + info.byte_size) {
        return "tensor '" + info.name + "'";
      }
    }
    return "header";
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/last.safetensors";
  std::vector<TensorInfo> tensors_;
};

TEST_F(CheckpointTest, EveryEntryComesBackInOrder) {
  const StateDict state = training_state();
  save_checkpoint(path_, state, {{"epoch", "3"}});
  const Checkpoint loaded = load_checkpoint(path_);
  expect_equal(loaded.state, state);
  EXPECT_EQ(loaded.metadata, (SafetensorsMetadata{{"epoch", "3"}}));
  EXPECT_EQ(load_checkpoint_metadata(path_), loaded.metadata);
  EXPECT_EQ(folder_.filenames(), std::vector<std::string>{"last.safetensors"});
}

TEST_F(CheckpointTest, NumbersComeBackBitForBit) {
  using Limits = std::numeric_limits<double>;
  const std::vector<double> numbers{
      0.1,
      -0.0,
      1e300,
      3,
      Limits::denorm_min(),
      Limits::max(),
      Limits::infinity(),
      -Limits::infinity(),
      Limits::quiet_NaN(),
      -Limits::quiet_NaN(),
      std::bit_cast<double>(uint64_t{0x7FF800000000BEEF})};
  StateDict state;
  for (const double number : numbers) {
    state.set("n" + std::to_string(state.size()), number);
  }
  state.set("lowest", std::numeric_limits<int64_t>::min());
  state.set("highest", std::numeric_limits<int64_t>::max());
  save_checkpoint(path_, state);
  const StateDict found = load_checkpoint(path_).state;
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(
        std::bit_cast<uint64_t>(found.real("n" + std::to_string(i))),
        std::bit_cast<uint64_t>(numbers[i]));
  }
  EXPECT_EQ(found.integer("lowest"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(found.integer("highest"), std::numeric_limits<int64_t>::max());
}

TEST_F(CheckpointTest, EmptyStateIsACheckpointToo) {
  save_checkpoint(path_, {});
  EXPECT_TRUE(load_checkpoint(path_).state.empty());
}

TEST_F(CheckpointTest, LoadedTensorsDoNotDependOnTheFile) {
  StateDict state;
  state.set("w", torch::ones({4}));
  save_checkpoint(path_, state);
  const Checkpoint loaded = load_checkpoint(path_);
  write_text(path_, "");
  EXPECT_TRUE(loaded.state.tensor("w").equal(torch::ones({4})));
}

// Positions: all with AMPKIT_TEST_LONG=1, else about 300 and all of the first
// bytes, which hold the length of the header.
TEST_F(CheckpointTest, AFlippedByteAnywhereNamesTheTensorOrTheHeader) {
  save_checkpoint(path_, training_state(), {{"epoch", "3"}});
  tensors_ = SafetensorsReader(path_).tensors();
  const std::string sound = read_text(path_);
  std::mt19937 random(0);
  const size_t step = long_run() ? 1 : 1 + sound.size() / 300;
  for (size_t i = 0; i < sound.size(); i += i < 8 ? 1 : step) {
    std::string content = sound;
    // Any other value, not always the same bit.
    content[i] = static_cast<char>(content[i] ^ (1 + random() % 255));
    write_text(path_, content);
    const auto owner = owner_of(i);
    expect_damaged(owner, c10::str("byte ", i, " of ", owner));
    if (owner == "header") {
      EXPECT_ERROR(load_checkpoint_metadata(path_), CheckpointError, path_);
    }
  }
}

TEST_F(CheckpointTest, EveryTruncationAndEveryExtraByteIsDetected) {
  save_checkpoint(path_, training_state());
  const std::string sound = read_text(path_);
  const size_t step = long_run() ? 1 : 1 + sound.size() / 100;
  for (size_t size = 0; size < sound.size(); size += step) {
    write_text(path_, sound.substr(0, size));
    expect_damaged("", c10::str(size, " bytes left"));
  }
  write_text(path_, sound + '\0');
  expect_damaged("end at byte", "a byte more");
}

TEST_F(CheckpointTest, FilesOfOtherWritersAreNotTakenForCheckpoints) {
  save_safetensors(path_, {{"w", torch::ones({1})}});
  expect_damaged("not a checkpoint of ampkit", "no checksum");
}

TEST_F(CheckpointTest, WhatTheFormatCannotHoldIsRefusedBeforeWriting) {
  StateDict note;
  note.set("note", "\xff");
  EXPECT_ERROR(save_checkpoint(path_, note), c10::ValueError, "UTF-8");
  StateDict sparse;
  sparse.set("w", torch::ones({1}).to_sparse());
  EXPECT_ERROR(save_checkpoint(path_, sparse), c10::ValueError, "'w'");
  EXPECT_ERROR(
      save_checkpoint(path_, {}, {{"ampkit.format", "2"}}),
      c10::ValueError,
      "'ampkit.format'",
      "reserved");
  EXPECT_TRUE(folder_.filenames().empty());
}

// The disk is full at every stage of the writing in turn.
TEST_F(CheckpointTest, AFullDiskLeavesTheOldCheckpoint) {
  const StateDict old = training_state();
  save_checkpoint(path_, old);
  StateDict larger;
  larger.set("a", torch::ones({5'000}));
  larger.set("b", torch::ones({5'000}));
  for (const rlim_t limit : {0, 100, 1'000, 20'000, 40'000}) {
    {
      const FileSizeLimit full(limit);
      EXPECT_ERROR(
          save_checkpoint(path_, larger), CheckpointError, "cannot write");
    }
    expect_equal(load_checkpoint(path_).state, old);
    EXPECT_EQ(folder_.filenames().size(), 1U);
  }
}

} // namespace
} // namespace ampkit::io
