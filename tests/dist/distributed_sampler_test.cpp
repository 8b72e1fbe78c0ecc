#include <ampkit/dist/distributed_sampler.h>
#include <ampkit/dist/spawn_threads.h>

#include <algorithm>
#include <numeric>

#include "support/errors.h"

namespace ampkit::dist {
namespace {

using Indices = std::vector<int64_t>;

void append(Indices& all, const Indices& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// What all ranks together see, batch after batch, until an epoch ends.
Indices rest_of_epoch(std::vector<DistributedSampler>& ranks) {
  Indices all;
  while (true) {
    size_t ended = 0;
    for (auto& rank : ranks) {
      const auto part = rank.next();
      ended += part ? 0 : 1;
      append(all, part.value_or(Indices()));
    }
    if (ended > 0) {
      EXPECT_EQ(ended, ranks.size()); // equally many batches
      return all;
    }
  }
}

std::vector<DistributedSampler> samplers(
    int64_t samples,
    int64_t per_step,
    int64_t ranks,
    const DistributedSamplerOptions& options = {}) {
  std::vector<DistributedSampler> all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    all.emplace_back(samples, per_step, rank, ranks, options);
  }
  return all;
}

Indices sorted(Indices indices) {
  std::ranges::sort(indices);
  return indices;
}

Indices up_to(int64_t count) {
  Indices all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(DistributedSamplerTest, EachSampleIsSeenOnceInEachEpoch) {
  for (const int64_t ranks : {1, 2, 3, 5, 8}) {
    for (const int64_t samples : {1, 7, 16, 41}) {
      auto all = samplers(samples, 8, ranks);
      for (int epoch = 0; epoch < 3; ++epoch) {
        EXPECT_EQ(all[0].epoch(), epoch);
        EXPECT_EQ(sorted(rest_of_epoch(all)), up_to(samples));
      }
    }
  }
}

TEST(DistributedSamplerTest, EpochsDifferThoughNobodyAnnouncesThem) {
  auto all = samplers(50, 10, 2);
  const auto first = rest_of_epoch(all);
  const auto second = rest_of_epoch(all);
  EXPECT_NE(first, second);
  auto again = samplers(50, 10, 2);
  EXPECT_EQ(rest_of_epoch(again), first);
  auto seeded = samplers(50, 10, 2, {.seed = 1});
  EXPECT_NE(rest_of_epoch(seeded), first);
}

TEST(DistributedSamplerTest, OrderIsThatOfOneProcessForAnyNumberOfRanks) {
  auto one = samplers(45, 8, 1);
  const auto expected = rest_of_epoch(one);
  for (const int64_t ranks : {2, 3, 8}) {
    auto all = samplers(45, 8, ranks);
    EXPECT_EQ(rest_of_epoch(all), expected) << ranks;
  }
}

TEST(DistributedSamplerTest, WithoutShufflingAndWithoutTheLastBatch) {
  auto all = samplers(21, 8, 2, {.shuffle = false, .drop_last = true});
  EXPECT_EQ(all[0].batches_per_epoch(), 2);
  EXPECT_EQ(rest_of_epoch(all), up_to(16));
}

TEST(DistributedSamplerTest, PartsDifferByOneAndMayBeEmpty) {
  auto all = samplers(10, 8, 4, {.shuffle = false});
  for (auto& rank : all) {
    EXPECT_EQ(rank.next()->size(), 2);
    EXPECT_EQ(rank.step_size(), 8);
  }
  size_t empty = 0;
  for (auto& rank : all) {
    const auto part = rank.next();
    ASSERT_TRUE(part);
    empty += part->empty() ? 1 : 0;
    EXPECT_EQ(rank.step_size(), 2);
  }
  EXPECT_EQ(empty, 2);
}

TEST(DistributedSamplerTest, StateGoesOnAtAnotherNumberOfRanks) {
  auto three = samplers(40, 7, 3);
  rest_of_epoch(three);
  Indices seen;
  for (auto& rank : three) {
    append(seen, *rank.next());
    append(seen, *rank.next());
  }
  auto two = samplers(40, 7, 2);
  for (auto& rank : two) {
    rank.load_state_dict(three[1].state_dict());
  }
  append(seen, rest_of_epoch(two));
  EXPECT_EQ(sorted(seen), up_to(40));
  rest_of_epoch(three);
  EXPECT_EQ(rest_of_epoch(two), rest_of_epoch(three)); // the epoch after
}

TEST(DistributedSamplerTest, StateOfOtherBatchesIsRefusedByName) {
  DistributedSampler sampler(40, 8, 0, 1);
  sampler.next();
  const auto state = DistributedSampler(40, 4, 0, 1).state_dict();
  EXPECT_ERROR(
      sampler.load_state_dict(state),
      c10::Error,
      "samples_per_step was integer 4",
      "is integer 8");
  EXPECT_ERROR(sampler.load_state_dict({}), c10::Error, "not saved");
  EXPECT_EQ(sampler.state_dict().integer("batch"), 1);
}

TEST(DistributedSamplerTest, ArgumentsOutOfRangeAreNamed) {
  using Sampler = DistributedSampler;
  EXPECT_ERROR(Sampler(0, 1, 0, 1), c10::ValueError, "samples must be >= 1");
  EXPECT_ERROR(Sampler(9, 1, 0, 2), c10::ValueError, "world_size = 2, got 1");
  EXPECT_ERROR(Sampler(9, 4, 2, 2), c10::ValueError, "rank must be in [0");
  EXPECT_ERROR(
      Sampler(3, 4, 0, 1, {.drop_last = true}), c10::ValueError, "drop_last");
  Sampler sampler(9, 4, 0, 1);
  EXPECT_ERROR(sampler.start_epoch(-1), c10::ValueError, "epoch must be >= 0");
  EXPECT_ERROR(sampler.start_epoch(0, 4), c10::ValueError, "[0, 3], got 4");
}

TEST(DistributedSamplerTest, TakesRankAndWorldFromTheContext) {
  spawn_threads(2, [](const Context& context) {
    DistributedSampler sampler(8, 4, context, {.shuffle = false});
    const auto part = *sampler.next();
    const int64_t first = context.rank() * 2;
    TORCH_CHECK((part == Indices{first, first + 1}));
  });
}

} // namespace
} // namespace ampkit::dist
