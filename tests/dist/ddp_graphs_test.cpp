// DistributedDataParallel where the graph is not the same for all parameters:
// unused, shared and repeated ones, and results of any shape.

#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/dist/spawn_threads.h>

#include "dist/ddp_support.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

// A layer that only the first of two micro-batches uses.
TEST(DdpGraphsTest, LayerUsedInAnEarlierMicroBatchOnlyIsReduced) {
  spawn_threads(2, [](const Context& context) {
    SmallNet ours(false, true);
    SmallNet whole(false, true);
    DistributedDataParallel ddp(
        *ours, context, {.find_unused_parameters = true});
    const Batch batch(2);
    const auto mine = batch.of(context.rank());
    {
      const auto no_sync = ddp.no_sync();
      ddp.forward([&] { return ours(mine.input, true); }).sum().backward();
    }
    ddp.forward([&] { return ours(mine.input); }).sum().backward();
    for (int rank = 0; rank < 2; ++rank) {
      const auto part = batch.of(rank);
      (whole(part.input, true).sum() / 2).backward();
      (whole(part.input).sum() / 2).backward();
    }
    check_close(
        "gradients",
        difference(gradients_of(*ours), gradients_of(*whole)),
        1e-5); // sums of 24 values
  });
}

TEST(DdpGraphsTest, ParameterThatNobodyUsesKeepsItsGradientUndefined) {
  spawn_threads(2, [](const Context& context) {
    SmallNet net(false, true);
    DistributedDataParallel ddp(
        *net, context, {.find_unused_parameters = true});
    const auto before = net->extra->weight.detach().clone();
    torch::optim::AdamW optimizer(net->parameters()); // decays what has one
    const auto mine = Batch(2).of(context.rank());
    ddp.forward([&] { return net(mine.input); }).sum().backward();
    TORCH_CHECK(!net->extra->weight.grad().defined());
    optimizer.step();
    TORCH_CHECK(net->extra->weight.equal(before));
  });
}

// A different rank in each step.
TEST(DdpGraphsTest, ParameterThatOneRankUsesHasTheMeanOnAll) {
  spawn_threads(2, [](const Context& context) {
    SmallNet ours(false, true);
    SmallNet whole(false, true);
    DistributedDataParallel ddp(
        *ours, context, {.find_unused_parameters = true});
    const Batch batch(2);
    for (int64_t step = 0; step < 3; ++step) {
      const auto mine = batch.of(context.rank());
      ddp.forward(
             [&] { return ours(mine.input, (context.rank() + step) % 2 == 0); })
          .mean()
          .backward();
      for (int rank = 0; rank < 2; ++rank) {
        (whole(batch.of(rank).input, (rank + step) % 2 == 0).mean() / 2)
            .backward();
      }
      check_close(
          "gradients", difference(gradients_of(*ours), gradients_of(*whole)));
      ddp.zero_grad();
      whole->zero_grad();
    }
  });
}

TEST(DdpGraphsTest, UnusedParameterWithoutTheOptionIsNamed) {
  spawn_threads(2, [](const Context& context) {
    SmallNet net(false, true);
    DistributedDataParallel ddp(*net, context);
    const auto mine = Batch(2).of(context.rank());
    const auto pass = [&] {
      ddp.forward([&] { return net(mine.input); }).sum().backward();
    };
    pass();
    EXPECT_ERROR(
        pass(),
        c10::Error,
        "did not reach every parameter; without a gradient: extra.weight, "
        "extra.bias",
        "Set find_unused_parameters");
  });
}

TEST(DdpGraphsTest, TiedWeightIsCountedOnce) {
  for (const bool views : {false, true}) {
    spawn_threads(2, [&](const Context& context) {
      TiedNet ours;
      TiedNet whole;
      DistributedDataParallel ddp(
          *ours, context, {.gradient_as_bucket_view = views});
      for (int64_t step = 0; step < 3; ++step) {
        const Batch batch(2, step);
        const auto mine = batch.of(context.rank());
        ddp.forward([&] { return ours(mine.input); }).mean().backward();
        whole(batch.input).mean().backward();
        check_close(
            "gradients",
            difference({ours->encoder.grad()}, {whole->encoder.grad()}));
        ddp.zero_grad();
        whole->zero_grad();
      }
      TORCH_CHECK(ddp.bucket_bytes() == std::vector<int64_t>{64 * 4});
    });
  }
}

TEST(DdpGraphsTest, StaticGraphTakesLayersThatAreUsedTwice) {
  spawn_threads(2, [](const Context& context) {
    torch::nn::Linear ours(8, 8);
    DistributedDataParallel ddp(
        *ours, context, many_buckets({.static_graph = true}));
    torch::nn::Linear whole(8, 8);
    {
      const at::NoGradGuard no_grad;
      whole->weight.copy_(ours->weight);
      whole->bias.copy_(ours->bias);
    }
    for (int64_t step = 0; step < 3; ++step) {
      const Batch batch(2, step);
      const auto mine = batch.of(context.rank());
      ddp.forward([&] { return ours(ours(mine.input)); }).mean().backward();
      whole(whole(batch.input)).mean().backward();
      check_close(
          "gradients", difference(gradients_of(*ours), gradients_of(*whole)));
      ddp.zero_grad();
      whole->zero_grad();
    }
  });
}

TEST(DdpGraphsTest, ResultsOfAnyShapeAreSearched) {
  spawn_threads(2, [](const Context& context) {
    SmallNet net(false, true);
    DistributedDataParallel ddp(
        *net, context, {.find_unused_parameters = true});
    const auto mine = Batch(2).of(context.rank());
    const auto check = [&](const at::Tensor& output) {
      output.sum().backward();
      TORCH_CHECK(net->second->weight.grad().defined());
      TORCH_CHECK(!net->extra->weight.grad().defined());
      ddp.zero_grad();
    };
    const auto run = [&] { return net(mine.input); };
    check(std::get<0>(ddp.forward([&] { return std::tuple(run(), 3); })));
    check(ddp.forward([&] { return std::pair(2.0, run()); }).second);
    check(ddp.forward([&] { return std::vector{run()}; }).front());
    check(*ddp.forward([&] { return std::optional(run()); }));
    check(ddp.forward([&] {
               return std::map<std::string, at::Tensor>{{"y", run()}};
             })
              .at("y"));
    check(ddp.forward([&] { return c10::IValue(run()); }).toTensor());
  });
}

} // namespace
} // namespace ampkit::dist
