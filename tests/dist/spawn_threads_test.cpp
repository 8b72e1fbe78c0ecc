#include <ampkit/amp/autocast.h>
#include <ampkit/amp/recompute.h>
#include <ampkit/dist/spawn_threads.h>
#include <ampkit/io/rng_state.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "support/errors.h"

namespace ampkit::dist {
namespace {

using std::chrono::milliseconds;

at::Tensor rank_sum(const Context& context, at::Tensor values) {
  std::vector<at::Tensor> tensors{std::move(values)};
  context.process_group()->allreduce(tensors)->wait();
  return tensors.front();
}

/// Random tensors by many roads: factories, in-place ops, modules, backward.
std::vector<at::Tensor> draw() {
  std::vector<at::Tensor> drawn{
      at::rand({5}),
      at::randn({5}),
      at::randint(100, {5}),
      at::randperm(9),
      at::empty({4}).uniform_(),
      at::empty({4}).normal_(),
      at::bernoulli(at::full({8}, 0.5)),
      at::multinomial(at::ones({6}), 3),
      at::dropout(at::ones({16}), 0.5, true),
      at::normal(at::zeros({3}), at::ones({3}))};
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).dropout(0.5));
  const auto input = at::ones({2, 2, 3});
  std::get<0>(lstm->forward(input)).sum().backward();
  for (const auto& parameter : lstm->parameters()) {
    drawn.push_back(parameter.grad());
  }
  return drawn;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.equal(y); });
}

TEST(SpawnThreadsTest, EachThreadIsARank) {
  std::vector<int> seen(4, -1);
  spawn_threads(4, [&](const Context& context) {
    seen[static_cast<size_t>(context.rank())] = context.local_rank();
    TORCH_CHECK(context.world_size() == 4);
    TORCH_CHECK(context.environment().launcher == Launcher::threads);
    const auto sum = rank_sum(context, at::full({3}, context.rank() + 1.0));
    TORCH_CHECK(sum.equal(at::full({3}, 10.0)), sum);
  });
  EXPECT_EQ(seen, (std::vector{0, 1, 2, 3}));
}

TEST(SpawnThreadsTest, RandomNumbersAreThoseOfAProcessWithTheSameSeed) {
  const auto threads_before = at::get_num_threads();
  at::set_num_threads(1);
  std::vector<std::vector<at::Tensor>> expected;
  for (const int rank : {0, 1, 2}) {
    at::manual_seed(40 + rank);
    expected.push_back(draw());
  }
  at::set_num_threads(threads_before);
  at::manual_seed(1);
  const auto shared = at::rand({2});
  at::manual_seed(1);
  std::vector<std::vector<at::Tensor>> drawn(3);
  spawn_threads(
      3,
      [&](const Context& context) {
        const auto rank = context.rank();
        context.manual_seed(40 + rank);
        context.barrier(); // all draw at once
        drawn[static_cast<size_t>(rank)] = draw();
      },
      {.threads_per_rank = 1});
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(same(drawn[rank], expected[rank])) << rank;
  }
  EXPECT_TRUE(at::rand({2}).equal(shared)); // nothing was taken from it
}

TEST(SpawnThreadsTest, RanksBeginWithTheSameSeed) {
  std::vector<at::Tensor> drawn(2);
  for (int i = 0; i < 2; ++i) {
    spawn_threads(2, [&](const Context& context) {
      drawn[static_cast<size_t>(context.rank())] = at::rand({4});
    });
    EXPECT_TRUE(drawn[0].equal(drawn[1]));
  }
}

TEST(SpawnThreadsTest, GeneratorGivenToAnOpIsUsed) {
  spawn_threads(1, [&](const Context& context) {
    context.manual_seed(3);
    auto other = at::detail::createCPUGenerator(7);
    const auto given = at::rand({4}, other);
    other.set_current_seed(7);
    TORCH_CHECK(at::rand({4}, other).equal(given));
    const auto own = at::rand({4});
    context.manual_seed(3);
    TORCH_CHECK(at::rand({4}).equal(own));
  });
}

TEST(SpawnThreadsTest, RngStateAndRecomputationAreTheRanks) {
  spawn_threads(2, [&](const Context& context) {
    context.manual_seed(context.rank());
    const auto state = io::rng_state();
    const auto drawn = at::rand({4});
    io::set_rng_state(state);
    TORCH_CHECK(at::rand({4}).equal(drawn));
    // Dropout of the second run must drop the same.
    const auto input = at::ones({64}).requires_grad_();
    const auto output = checkpoint(
        [](const at::Tensor& x) { return at::dropout(x * 1, 0.5, true); },
        input);
    output.sum().backward();
    TORCH_CHECK(input.grad().equal(output.detach()));
  });
}

TEST(SpawnThreadsTest, AutocastAndGradientModeAreTheRanks) {
  spawn_threads(2, [](const Context& context) {
    TORCH_CHECK(at::GradMode::is_enabled());
    const bool first = context.rank() == 0;
    const auto product = [] {
      return at::mm(at::ones({2, 2}), at::ones({2, 2}));
    };
    Autocast autocast(
        at::kCPU, first ? Precision::bf16_mixed() : Precision::fp32());
    at::GradMode::set_enabled(first);
    context.barrier();
    TORCH_CHECK(
        product().scalar_type() == (first ? at::kBFloat16 : at::kFloat));
    TORCH_CHECK(at::GradMode::is_enabled() == first);
    context.barrier();
  });
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(SpawnThreadsTest, ErrorOfOneRankEndsTheOthersAndIsReportedByRank) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> ended{0};
  EXPECT_ERROR(
      spawn_threads(
          3,
          [&](const Context& context) {
            struct Count {
              std::atomic<int>& number;
              ~Count() { ++number; }
            } const count{ended};
            for (int step = 0;; ++step) {
              TORCH_CHECK_VALUE(
                  context.rank() != 1 || step < 5, "no data at step ", step);
              rank_sum(context, at::ones({8}));
            }
          }),
      c10::Error,
      "dist::spawn_threads: rank 1 of 3 failed: no data at step 5");
  EXPECT_EQ(ended, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(SpawnThreadsTest, RankThatLeavesEarlyWithoutErrorIsATimeOutOfTheOthers) {
  EXPECT_ERROR(
      spawn_threads(
          2,
          [](const Context& context) {
            if (context.rank() == 0) {
              rank_sum(context, at::ones({8}));
              rank_sum(context, at::ones({8}));
            }
          },
          {.timeout = milliseconds(500)}),
      c10::Error,
      "dist::spawn_threads: rank ");
}

TEST(SpawnThreadsTest, ExceptionOfAnyTypeIsReported) {
  EXPECT_ERROR(
      spawn_threads(1, [](const Context&) { throw 1; }),
      c10::Error,
      "rank 0 of 1 failed: an exception of unknown type");
  EXPECT_ERROR(
      spawn_threads(1, [](const Context&) { throw std::runtime_error("x"); }),
      c10::Error,
      "rank 0 of 1 failed: x");
}

TEST(SpawnThreadsTest, OpThreadsAreSharedOut) {
  const auto before = at::get_num_threads();
  at::set_num_threads(4);
  std::atomic<int> of_rank{0};
  spawn_threads(2, [&](const Context&) { of_rank = at::get_num_threads(); });
  EXPECT_EQ(of_rank, 2);
  spawn_threads(
      2,
      [&](const Context&) { of_rank = at::get_num_threads(); },
      {.threads_per_rank = 3});
  EXPECT_EQ(of_rank, 3);
  EXPECT_EQ(at::get_num_threads(), 4);
  at::set_num_threads(before);
}

TEST(SpawnThreadsTest, WrongArgumentsAreNamed) {
  const auto nothing = [](const Context&) {};
  EXPECT_ERROR(
      spawn_threads(0, nothing), c10::ValueError, "ranks must be >= 1, got 0");
  EXPECT_ERROR(
      spawn_threads(1, nothing, {.timeout = milliseconds(0)}),
      c10::ValueError,
      "timeout must be > 0");
  EXPECT_ERROR(
      spawn_threads(1, nothing, {.threads_per_rank = -1}),
      c10::ValueError,
      "threads_per_rank must be >= 0, got -1");
}

} // namespace
} // namespace ampkit::dist
