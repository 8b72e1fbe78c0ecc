// What launch() refuses and how it shares cores. What it does with processes is
// tested in tests/system/test_run*.py.

#include <ampkit/dist/launch.h>

#include "dist/core_binding.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

/// Two packages of two cores of two processors each, as Linux numbers them.
std::vector<Processor> two_packages() {
  std::vector<Processor> processors;
  for (const int package : {0, 1}) {
    for (const int core : {0, 1}) {
      const int number = 2 * package + core;
      processors.push_back({number, package, core});
      processors.push_back({number + 4, package, core});
    }
  }
  return processors;
}

TEST(CoreBindingTest, RanksGetWholeCoresOfOnePackage) {
  const auto shares = share_cores(two_packages(), 2, true);
  EXPECT_EQ(shares[0].processors, (std::vector{0, 4, 1, 5}));
  EXPECT_EQ(shares[1].processors, (std::vector{2, 6, 3, 7}));
  EXPECT_EQ(shares[0].threads, 2);
}

TEST(CoreBindingTest, CoresThatDoNotDivideAreAllUsed) {
  const auto shares = share_cores(two_packages(), 3, true);
  std::vector<int> all;
  for (const auto& share : shares) {
    EXPECT_EQ(share.threads, share.processors.size() / 2);
    all.insert(all.end(), share.processors.begin(), share.processors.end());
  }
  EXPECT_THAT(all, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(CoreBindingTest, FewerCoresThanRanksBindNobody) {
  for (const auto& share : share_cores(two_packages(), 5, true)) {
    EXPECT_TRUE(share.processors.empty());
    EXPECT_EQ(share.threads, 1);
  }
}

TEST(CoreBindingTest, UnboundRanksStillShareThreads) {
  for (const auto& share : share_cores(two_packages(), 2, false)) {
    EXPECT_TRUE(share.processors.empty());
    EXPECT_EQ(share.threads, 2);
  }
}

TEST(CoreBindingTest, ThisMachineHasProcessors) {
  EXPECT_GE(usable_processors().size(), 1);
}

TEST(LaunchTest, WrongOptionsAreNamed) {
  const auto refused = [](const LaunchOptions& options, const char* expected) {
    EXPECT_ERROR(launch({"true"}, options), c10::ValueError, expected);
  };
  refused({.nproc_per_node = 0}, "nproc_per_node must be in [1, 1024], got 0");
  refused({.nnodes = 0}, "nnodes must be in");
  refused({.node_rank = 1}, "node_rank must be in [0, 0], got 1");
  refused({.master_port = 65536}, "master_port must be in [0, 65535]");
  refused({.max_restarts = -1}, "max_restarts must be in");
  refused({.nnodes = 2}, "master_addr must be given with 2 nodes");
  refused(
      {.nnodes = 2, .master_addr = "node0", .max_restarts = 1},
      "max_restarts must be 0 with 2 nodes");
  refused(
      {.failure_grace = std::chrono::milliseconds(-1)},
      "failure_grace and interrupt_grace must be >= 0, got -1");
}

TEST(LaunchTest, ProgramMustBeThere) {
  EXPECT_ERROR(launch({}, {}), c10::ValueError, "command must name a program");
  EXPECT_ERROR(
      launch({"./no-such-program"}, {}),
      c10::ValueError,
      "cannot start './no-such-program': No such file or directory");
}

TEST(LaunchTest, LinesAndStatusComeFromTheRanks) {
  std::vector<std::string> lines;
  const LaunchOptions options{
      .nproc_per_node = 3, .on_line = [&](const RankLine& line) {
        lines.push_back(
            std::to_string(line.rank) + (line.to_stderr ? " err " : " out ") +
            line.text);
      }};
  const auto result =
      launch({"sh", "-c", "echo of $WORLD_SIZE; printf 'no end' >&2"}, options);
  EXPECT_EQ(result.status, 0);
  EXPECT_FALSE(result.failure.has_value());
  EXPECT_THAT(
      lines,
      ::testing::UnorderedElementsAre(
          "0 out of 3",
          "1 out of 3",
          "2 out of 3",
          "0 err no end",
          "1 err no end",
          "2 err no end"));
}

TEST(LaunchTest, FailureTellsRankStatusAndLastLines) {
  const auto result = launch(
      {"sh", "-c", "test $RANK = 0 && exec sleep 60; echo bad >&2; exit 7"},
      {.nproc_per_node = 2});
  EXPECT_EQ(result.status, 7);
  EXPECT_EQ(result.failure->rank, 1);
  EXPECT_EQ(result.failure->status, 7);
  EXPECT_EQ(result.failure->signal, 0);
  EXPECT_EQ(result.failure->last_lines, std::vector<std::string>{"bad"});
  EXPECT_THAT(
      result.failure->describe(),
      ::testing::MatchesRegex("rank 1 .process [0-9]+. ended with status 7"));
}

} // namespace
} // namespace ampkit::dist
