// DistributedDataParallel on ranks as threads, beside one process that sees the
// whole batch.

#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/dist/spawn_threads.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dist/ddp_support.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

torch::optim::SGD sgd(const torch::nn::Module& module) {
  return torch::optim::SGD(
      module.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

using Case = std::tuple<int, bool, bool>; // ranks, views, find unused

class DdpCasesTest : public ::testing::TestWithParam<Case> {};

TEST_P(DdpCasesTest, FiftyStepsAreThoseOfOneProcessOnTheWholeBatch) {
  const auto [ranks, views, find_unused] = GetParam();
  const auto options = many_buckets(
      {.gradient_as_bucket_view = views,
       .find_unused_parameters = find_unused});
  spawn_threads(ranks, [&](const Context& context) {
    SmallNet ours;
    SmallNet whole;
    DistributedDataParallel ddp(*ours, context, options);
    auto optimizer = sgd(*ours);
    auto whole_optimizer = sgd(*whole);
    for (int64_t step = 0; step < 50; ++step) {
      const Batch batch(context.world_size(), step);
      const auto mine = batch.of(context.rank());
      const auto output = ddp.forward([&] { return ours(mine.input); });
      torch::mse_loss(output, mine.target).backward();
      torch::mse_loss(whole(batch.input), batch.target).backward();
      check_close(
          "gradients", difference(gradients_of(*ours), gradients_of(*whole)));
      optimizer.step();
      whole_optimizer.step();
      ddp.zero_grad();
      whole_optimizer.zero_grad();
    }
    check_close("weights", difference(ours->parameters(), whole->parameters()));
    // Rebuilt, but where the graph is searched.
    TORCH_CHECK(ddp.bucket_bytes().size() > 1, ddp.bucket_bytes());
  });
}

INSTANTIATE_TEST_SUITE_P(
    All,
    DdpCasesTest,
    ::testing::Combine(
        ::testing::Values(1, 2, 3), ::testing::Bool(), ::testing::Bool()));

// The statistics of batch norm are those of a rank's rows: the reference takes
// the parts one after the other.
TEST(DdpTest, BatchNormIsThatOfTheParts) {
  spawn_threads(2, [](const Context& context) {
    SmallNet ours(true);
    SmallNet whole(true);
    DistributedDataParallel ddp(*ours, context, many_buckets());
    auto optimizer = sgd(*ours);
    auto whole_optimizer = sgd(*whole);
    for (int64_t step = 0; step < 10; ++step) {
      const Batch batch(2, step);
      const auto mine = batch.of(context.rank());
      torch::mse_loss(
          ddp.forward([&] { return ours(mine.input); }), mine.target)
          .backward();
      for (int rank = 0; rank < 2; ++rank) {
        const auto part = batch.of(rank);
        (torch::mse_loss(whole(part.input), part.target) / 2).backward();
      }
      check_close(
          "gradients", difference(gradients_of(*ours), gradients_of(*whole)));
      optimizer.step();
      whole_optimizer.step();
      ddp.zero_grad();
      whole_optimizer.zero_grad();
    }
  });
}

TEST(DdpTest, RanksBeginWithTheWeightsAndBuffersOfRank0) {
  std::vector<std::vector<at::Tensor>> seen(2);
  spawn_threads(2, [&](const Context& context) {
    SmallNet net(true);
    if (context.rank() == 0) {
      const at::NoGradGuard no_grad;
      net->first->weight.fill_(0.5);
      net->norm->running_mean.fill_(3);
    }
    net->second->bias.requires_grad_(false).fill_(context.rank()); // frozen too
    const DistributedDataParallel ddp(*net, context);
    seen[static_cast<size_t>(context.rank())] = copies(
        {net->first->weight, net->norm->running_mean, net->second->bias});
  });
  EXPECT_EQ(difference(seen[0], seen[1]), 0);
  EXPECT_EQ(seen[1][0][0][0].item<float>(), 0.5F);
  EXPECT_EQ(seen[1][1][0].item<float>(), 3.0F);
  EXPECT_EQ(seen[1][2][0].item<float>(), 0.0F);
}

TEST(DdpTest, BuffersAreThoseOfRank0AtEachForwardPass) {
  std::vector<at::Tensor> means(2);
  spawn_threads(2, [&](const Context& context) {
    SmallNet net(true);
    DistributedDataParallel ddp(*net, context);
    for (int64_t step = 0; step < 3; ++step) {
      const auto mine = Batch(2, step).of(context.rank());
      ddp.forward([&] { return net(mine.input); }).sum().backward();
      ddp.zero_grad();
    }
    net->eval();
    ddp.forward([&] { return net(Batch(2).input); });
    means[static_cast<size_t>(context.rank())] =
        net->norm->running_mean.clone();
  });
  EXPECT_TRUE(means[0].equal(means[1])) << means[0] << means[1];
}

TEST(DdpTest, BuffersStayARanksOwnIfNotBroadcast) {
  std::vector<at::Tensor> means(2);
  spawn_threads(2, [&](const Context& context) {
    SmallNet net(true);
    DistributedDataParallel ddp(*net, context, {.broadcast_buffers = false});
    const auto mine = Batch(2).of(context.rank());
    ddp.forward([&] { return net(mine.input); }).sum().backward();
    means[static_cast<size_t>(context.rank())] =
        net->norm->running_mean.clone();
  });
  EXPECT_FALSE(means[0].equal(means[1]));
}

// A discriminator sees real and fake images before one backward pass.
TEST(DdpTest, TwoForwardPassesBeforeOneBackwardWithBatchNorm) {
  spawn_threads(2, [](const Context& context) {
    SmallNet net(true);
    DistributedDataParallel ddp(*net, context);
    for (int64_t step = 0; step < 3; ++step) {
      const auto real = Batch(2, step).of(context.rank());
      const auto on_real = ddp.forward([&] { return net(real.input); });
      const auto on_fake = ddp.forward([&] { return net(real.input * 2); });
      (on_real.mean() - on_fake.mean()).backward();
      TORCH_CHECK(net->first->weight.grad().isfinite().all().item<bool>());
      ddp.zero_grad();
    }
  });
}

class DdpAccumulationTest : public ::testing::TestWithParam<bool> {};

TEST_P(DdpAccumulationTest, NoSyncAddsUpMicroBatches) {
  const bool views = GetParam();
  spawn_threads(2, [&](const Context& context) {
    SmallNet ours;
    SmallNet whole;
    DistributedDataParallel ddp(
        *ours, context, many_buckets({.gradient_as_bucket_view = views}));
    auto optimizer = sgd(*ours);
    auto whole_optimizer = sgd(*whole);
    for (int64_t step = 0; step < 4; ++step) {
      const Batch batch(2, step);
      const auto mine = batch.of(context.rank());
      const auto micro = [&](int64_t i) {
        const auto rows = mine.input.narrow(0, 2 * i, 2);
        const auto output = ddp.forward([&] { return ours(rows); });
        (torch::mse_loss(output, mine.target.narrow(0, 2 * i, 2)) / 3)
            .backward();
      };
      {
        const auto no_sync = ddp.no_sync();
        micro(0);
        micro(1);
      }
      micro(2);
      torch::mse_loss(whole(batch.input), batch.target).backward();
      check_close(
          "gradients", difference(gradients_of(*ours), gradients_of(*whole)));
      optimizer.step();
      whole_optimizer.step();
      ddp.zero_grad();
      whole_optimizer.zero_grad();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, DdpAccumulationTest, ::testing::Bool());

TEST(DdpTest, NoSyncKeepsGradientsARanksOwn) {
  std::vector<at::Tensor> gradients(2);
  spawn_threads(2, [&](const Context& context) {
    SmallNet net;
    DistributedDataParallel ddp(*net, context);
    const auto mine = Batch(2).of(context.rank());
    const auto no_sync = ddp.no_sync();
    ddp.forward([&] { return net(mine.input); }).sum().backward();
    gradients[static_cast<size_t>(context.rank())] =
        net->first->weight.grad().clone();
  });
  EXPECT_FALSE(gradients[0].equal(gradients[1]));
}

TEST(DdpTest, NoGradPassesNeedNoOtherRank) {
  spawn_threads(2, [](const Context& context) {
    SmallNet net;
    DistributedDataParallel ddp(*net, context);
    const auto mine = Batch(2).of(context.rank());
    if (context.rank() == 0) {
      const at::NoGradGuard no_grad;
      ddp.forward([&] { return net(mine.input); });
    }
    ddp.forward([&] { return net(mine.input); }).sum().backward();
  });
}

TEST(DdpTest, WrongArgumentsAreNamed) {
  spawn_threads(1, [](const Context& context) {
    SmallNet net;
    const auto refused = [&](const DistributedDataParallelOptions& options,
                             const char* expected) {
      EXPECT_ERROR(
          DistributedDataParallel(*net, context, options),
          c10::ValueError,
          expected);
    };
    refused({.bucket_bytes = 0}, "bucket_bytes must be > 0, got 0");
    refused({.first_bucket_bytes = -1}, "first_bucket_bytes must be > 0");
    refused({.reduce_dtype = at::kInt}, "reduce_dtype must be floating point");
    for (auto& parameter : net->parameters()) {
      parameter.requires_grad_(false);
    }
    refused({}, "must have parameters that require gradients, got 0");
  });
}

TEST(DdpTest, RanksWithDifferentModulesAreAnError) {
  EXPECT_ERROR(
      spawn_threads(
          2,
          [](const Context& context) {
            torch::nn::Linear net(4, context.rank() + 1);
            const DistributedDataParallel ddp(*net, context);
          }),
      c10::Error,
      "appears not to match");
}

} // namespace
} // namespace ampkit::dist
