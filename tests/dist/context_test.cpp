// dist::init() with ranks as threads that meet at a TCP store, as processes do.

#include <ampkit/dist/context.h>

#include <csignal>

#include <ampkit/dist/spawn_threads.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dist/loopback.h"
#include "dist/on_each_rank.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

using std::chrono::milliseconds;

LaunchEnvironment rank_of(int rank, int world_size, uint16_t port) {
  return {
      .launcher = Launcher::torchrun,
      .rank = rank,
      .world_size = world_size,
      .local_rank = rank,
      .local_world_size = world_size,
      .master_port = port};
}

at::Tensor sum_over_ranks(const Context& context, at::Tensor values) {
  std::vector<at::Tensor> tensors{std::move(values)};
  context.process_group()->allreduce(tensors)->wait();
  return tensors.front();
}

TEST(ContextTest, RanksFindEachOther) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  const auto errors = errors_of_ranks(3, [&](int rank) {
    const auto context = init(rank_of(rank, 3, port));
    TORCH_CHECK(context.rank() == rank && context.world_size() == 3);
    TORCH_CHECK(context.local_rank() == rank);
    const auto sum = sum_over_ranks(context, at::full({2}, rank + 1.0));
    TORCH_CHECK(sum.equal(at::full({2}, 6.0)), sum);
    context.store()->set("from_" + std::to_string(rank), "x");
    context.store()->wait({"from_0", "from_1", "from_2"});
    context.barrier();
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST(ContextTest, OneProcessIsAGroupOfItsOwn) {
  const auto context = init(LaunchEnvironment{});
  EXPECT_EQ(context.world_size(), 1);
  EXPECT_TRUE(sum_over_ranks(context, at::ones({3})).equal(at::ones({3})));
  context.barrier();
}

TEST(ContextTest, SecondInitAfterTheFirstWorksAtTheSamePort) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  for (int round = 0; round < 2; ++round) {
    const auto errors = errors_of_ranks(2, [&](int rank) {
      const auto context = init(rank_of(rank, 2, port));
      context.barrier();
    });
    EXPECT_THAT(errors, ::testing::Each("")) << round;
  }
}

TEST(ContextTest, MissingRanksAreNamedToAllThatCame) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  const auto errors = errors_of_ranks(2, [&](int rank) {
    init(rank_of(rank, 4, port), {.start_timeout = milliseconds(700)});
  });
  for (const auto& error : errors) {
    EXPECT_THAT(
        error,
        ::testing::HasSubstr(
            "not all ranks started within 0.7 s; missing: 2, 3"));
  }
}

TEST(ContextTest, RanksThatDisagreeOnTheWorldAreAnError) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  const auto errors = errors_of_ranks(2, [&](int rank) {
    init(
        rank_of(rank, rank == 0 ? 2 : 3, port),
        {.start_timeout = milliseconds(1000)});
  });
  EXPECT_THAT(
      errors[0] + errors[1],
      ::testing::HasSubstr("another rank was told of a world of"));
}

TEST(ContextTest, NobodyAtTheMasterAddressSaysWhere) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  EXPECT_ERROR(
      init(rank_of(1, 2, port), {.start_timeout = milliseconds(500)}),
      c10::DistStoreError,
      "rank 1 of 2 (torchrun): no store at 127.0.0.1:" + std::to_string(port) +
          " within 0.5 s; is rank 0 running");
}

TEST(ContextTest, PortInUseSaysSo) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  const auto taken = listen_on_loopback("127.0.0.1", port);
  EXPECT_ERROR(
      init(rank_of(0, 2, port)),
      c10::DistStoreError,
      "cannot listen on 127.0.0.1:" + std::to_string(port) + ": ");
}

TEST(ContextTest, UnknownInterfaceIsNamed) {
  EXPECT_ERROR(
      init(LaunchEnvironment{}, {.interface = "nosuch0"}),
      c10::DistNetworkError,
      "nosuch0");
}

TEST(ContextTest, TimeLimitsMustBePositive) {
  EXPECT_ERROR(
      init(LaunchEnvironment{}, {.timeout = milliseconds(0)}),
      c10::ValueError,
      "timeout must be > 0, got 0 ms");
  EXPECT_ERROR(
      init(LaunchEnvironment{}, {.start_timeout = milliseconds(-1)}),
      c10::ValueError,
      "start_timeout must be > 0, got -1 ms");
}

TEST(ContextTest, LateRankFailsTheCollectiveAtTheTimeLimit) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  const auto errors = errors_of_ranks(2, [&](int rank) {
    const auto context =
        init(rank_of(rank, 2, port), {.timeout = milliseconds(500)});
    if (rank == 0) {
      sum_over_ranks(context, at::ones({4}));
    } else {
      std::this_thread::sleep_for(milliseconds(1500));
    }
  });
  EXPECT_THAT(errors[0], ::testing::HasSubstr("500ms"));
}

void ignore_nothing(int /*signal*/) {}

TEST(ContextTest, WritingToAClosedConnectionDoesNotEndTheProcess) {
  const auto connect_two = [] {
    spawn_threads(2, [](const Context& context) { context.barrier(); });
  };
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  connect_two();
  EXPECT_EQ(std::signal(SIGPIPE, ignore_nothing), SIG_IGN);
  connect_two();
  EXPECT_EQ(std::signal(SIGPIPE, before), ignore_nothing);
}

TEST(ContextTest, AbortEndsTheOthersCollectiveAtOnce) {
  const ReservedPort reserved;
  const auto port = reserved.port();
  std::chrono::steady_clock::duration waited{};
  const auto errors = errors_of_ranks(2, [&](int rank) {
    const auto context = init(rank_of(rank, 2, port));
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(200));
      context.abort();
      std::this_thread::sleep_for(milliseconds(2000));
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      sum_over_ranks(context, at::ones({4}));
    } catch (const std::exception&) {
      waited = std::chrono::steady_clock::now() - begin;
      throw;
    }
  });
  EXPECT_NE(errors[0], "");
  EXPECT_LT(waited, milliseconds(1800));
}

TEST(ContextTest, SeedIsThatOfTheProcess) {
  const auto context = init(LaunchEnvironment{});
  context.manual_seed(5);
  const auto ours = at::rand({4});
  at::manual_seed(5);
  EXPECT_TRUE(at::rand({4}).equal(ours));
  EXPECT_EQ(context.generator().current_seed(), 5);
}

} // namespace
} // namespace ampkit::dist
