#include "train/run_folder.h"

#include <ampkit/zoo/train/config.h>

#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  fs::path path() const { return fs::path(temporary_.path()) / "runs" / "a"; }

  // What a run leaves behind, and a file of the user's.
  void make_run() {
    const RunFolder folder(path(), FolderUse::fresh);
    folder.write("config.toml", "[train]\n");
    folder.write("metrics.jsonl", "{}\n");
    folder.write("events.out.tfevents.1.host", "x");
    folder.write("notes.txt", "mine");
    fs::create_directory(path() / "checkpoints");
  }

  io::TemporaryFolder temporary_;
};

TEST_F(RunFolderTest, FreshFolderIsMadeWithItsParents) {
  const RunFolder folder(path(), FolderUse::fresh);
  EXPECT_TRUE(fs::is_directory(path()));
  folder.write("config.toml", "text");
  EXPECT_EQ(io::read_text(folder.file("config.toml")), "text");
}

TEST_F(RunFolderTest, RunIsNeverOverwrittenUnasked) {
  make_run();
  EXPECT_ERROR(
      RunFolder(path(), FolderUse::fresh),
      ConfigError,
      "there is a run in this folder; --resume goes on with it, --overwrite");
  EXPECT_TRUE(fs::exists(path() / "metrics.jsonl"));
}

TEST_F(RunFolderTest, ResumeKeepsEverything) {
  make_run();
  const RunFolder folder(path(), FolderUse::resume);
  EXPECT_TRUE(fs::exists(path() / "metrics.jsonl"));
  EXPECT_TRUE(fs::exists(path() / "checkpoints"));
}

TEST_F(RunFolderTest, OverwriteDeletesTheRunAndNothingElse) {
  make_run();
  const RunFolder folder(path(), FolderUse::overwrite);
  EXPECT_FALSE(fs::exists(path() / "metrics.jsonl"));
  EXPECT_FALSE(fs::exists(path() / "checkpoints"));
  EXPECT_FALSE(fs::exists(path() / "events.out.tfevents.1.host"));
  EXPECT_TRUE(fs::exists(path() / "notes.txt"));
}

TEST_F(RunFolderTest, FolderWithOtherThingsIsLeftAlone) {
  fs::create_directories(path());
  io::write_text((path() / "thesis.tex").string(), "x");
  for (const auto use :
       {FolderUse::fresh, FolderUse::resume, FolderUse::overwrite}) {
    EXPECT_ERROR(
        RunFolder(path(), use),
        ConfigError,
        "the folder is not empty and holds no run (no config.toml)");
  }
  EXPECT_TRUE(fs::exists(path() / "thesis.tex"));
}

TEST_F(RunFolderTest, OneProcessAtATime) {
  const RunFolder folder(path(), FolderUse::fresh);
  EXPECT_ERROR(
      RunFolder(path(), FolderUse::resume),
      ConfigError,
      "another process trains in this folder");
}

TEST_F(RunFolderTest, LockEndsWithTheFolder) {
  {
    const RunFolder folder(path(), FolderUse::fresh);
  }
  EXPECT_NO_THROW(RunFolder(path(), FolderUse::fresh));
}

TEST_F(RunFolderTest, FileInTheWayIsNamed) {
  io::write_text(temporary_.path() + "/runs", "x");
  EXPECT_ERROR(
      RunFolder(path(), FolderUse::fresh),
      ConfigError,
      "runs/a: the folder of the run cannot be created");
}

} // namespace
} // namespace ampkit::zoo
