// DistributedDataParallel where ranks have different numbers of batches, and
// what it tells of itself.

#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/dist/spawn_threads.h>

#include "dist/ddp_support.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

/// Weights of each rank after training on as many batches as `batches` says.
std::vector<std::vector<at::Tensor>> train_unevenly(
    const std::vector<int64_t>& batches,
    const DistributedDataParallelOptions& options = many_buckets()) {
  const auto ranks = static_cast<int>(batches.size());
  std::vector<std::vector<at::Tensor>> weights(batches.size());
  spawn_threads(ranks, [&](const Context& context) {
    const auto me = static_cast<size_t>(context.rank());
    SmallNet net(true);
    DistributedDataParallel ddp(*net, context, options);
    torch::optim::SGD optimizer(
        net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    for (int64_t step = 0; ddp.join(step < batches[me]); ++step) {
      if (step < batches[me]) {
        const auto part = Batch(ranks, step).of(context.rank());
        auto output = ddp.forward([&] { return net(part.input); });
        torch::mse_loss(output, part.target).backward();
      } else {
        ddp.pass_without_batch();
      }
      optimizer.step();
      ddp.zero_grad();
    }
    weights[me] = copies(net->parameters());
  });
  return weights;
}

/// The mean over the ranks that have a batch, in one process.
std::vector<at::Tensor> expected_unevenly(const std::vector<int64_t>& batches) {
  const auto ranks = static_cast<int>(batches.size());
  SmallNet net(true);
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto most = *std::ranges::max_element(batches);
  for (int64_t step = 0; step < most; ++step) {
    optimizer.zero_grad();
    double active = 0;
    for (const auto count : batches) {
      active += step < count ? 1 : 0;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (step < batches[static_cast<size_t>(rank)]) {
        const auto part = Batch(ranks, step).of(rank);
        (torch::mse_loss(net(part.input), part.target) / active).backward();
      }
    }
    optimizer.step();
  }
  return copies(net->parameters());
}

TEST(JoinTest, UnevenBatchesGiveTheMeanOverTheRanksThatHaveOne) {
  for (const auto& batches :
       {std::vector<int64_t>{3, 5}, {5, 3}, {4, 1, 3}, {0, 2}, {2, 2}}) {
    for (const bool find_unused : {false, true}) {
      const auto found = train_unevenly(
          batches, many_buckets({.find_unused_parameters = find_unused}));
      const auto expected = expected_unevenly(batches);
      for (const auto& rank : found) {
        EXPECT_LE(difference(rank, expected), kClose);
        EXPECT_EQ(difference(rank, found[0]), 0);
      }
    }
  }
}

TEST(JoinTest, SixteenBitReductionsAreWeighedToo) {
  const auto found =
      train_unevenly({2, 4}, many_buckets({.reduce_dtype = at::kBFloat16}));
  // bf16 has 8 bits; weights moved by at most 0.1.
  EXPECT_LE(difference(found[0], expected_unevenly({2, 4})), 4e-3);
  EXPECT_EQ(difference(found[0], found[1]), 0);
}

TEST(JoinTest, NobodyWithABatchEndsAtOnce) {
  EXPECT_EQ(
      difference(
          train_unevenly({0, 0})[1], copies(SmallNet(true)->parameters())),
      0);
}

TEST(JoinTest, StaticGraphIsRefused) {
  EXPECT_ERROR(
      train_unevenly({1, 1}, {.static_graph = true}),
      c10::Error,
      "join: not with static_graph");
}

void train_with_checksums(int64_t every, int64_t drift_at, int64_t steps) {
  spawn_threads(3, [&](const Context& context) {
    SmallNet net;
    DistributedDataParallel ddp(*net, context, {.checksum_every = every});
    torch::optim::SGD optimizer(
        net->parameters(), torch::optim::SGDOptions(0.05));
    for (int64_t step = 0; step < steps; ++step) {
      if (step == drift_at && context.rank() == 2) {
        const at::NoGradGuard no_grad;
        auto* bias = net->second->bias.data_ptr<float>();
        bias[3] = std::nextafter(bias[3], 1.0F); // one bit
      }
      const auto part = Batch(3).of(context.rank());
      ddp.forward([&] { return net(part.input); }).square().mean().backward();
      optimizer.step();
      ddp.zero_grad();
    }
  });
}

TEST(ChecksumTest, OneBitOnOneRankIsFoundAndNamed) {
  train_with_checksums(2, -1, 8);
  EXPECT_ERROR(
      train_with_checksums(2, 4, 8),
      c10::Error,
      "ranks 0 and 2 no longer have the same weights",
      "first that differs is 'second.bias'");
  train_with_checksums(0, 4, 8); // nobody looks
  EXPECT_ERROR(
      train_with_checksums(-1, 0, 1),
      c10::Error,
      "checksum_every must be >= 0");
}

TEST(DdpTimesTest, MeasuredPassesHaveTimesThatFitTogether) {
  spawn_threads(2, [](const Context& context) {
    SmallNet net;
    DistributedDataParallel ddp(*net, context, many_buckets());
    for (int step = 0; step < 5; ++step) {
      const auto part = Batch(2).of(context.rank());
      ddp.forward([&] { return net(part.input); }).square().mean().backward();
      ddp.zero_grad();
    }
    const auto times = ddp.times();
    TORCH_CHECK(times.passes == 5);
    TORCH_CHECK(times.forward > 0 && times.backward > 0);
    TORCH_CHECK(times.communication > 0);
    TORCH_CHECK(times.overlap <= times.communication);
  });
}

} // namespace
} // namespace ampkit::dist
