// What people suffer from in the loop around the model, where there are several
// ranks; a test is named after what they see. docs/symptoms.md lists them.

#include <array>

#include <ampkit/amp/gradient_accumulation.h>
#include <ampkit/dist/agreement.h>
#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/dist/spawn_threads.h>
#include <ampkit/io/checkpoint.h>
#include <ampkit/io/module_state.h>
#include <ampkit/optim/adamw.h>

#include "dist/ddp_support.h"
#include "dist/rank_run.h"
#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::dist {
namespace {

// Of 12 samples, rank 0 has 1 and 2, rank 1 has 4 and 5.
constexpr std::array<std::array<int64_t, 3>, 2> kCuts{{{0, 1, 3}, {3, 7, 12}}};

TEST(TrainingLoopSymptoms, RanksAndMicroBatchesOfUnequalSizeAreTheBigBatch) {
  spawn_threads(2, [](const Context& context) {
    SmallNet ours;
    SmallNet whole;
    DistributedDataParallel ddp(*ours, context, many_buckets());
    GradientAccumulation window(
        ours->parameters(),
        {.micro_batches = 2,
         .expected_count = 12,
         .sum_over_ranks = sum_over_ranks(context),
         .averaged_over = context.world_size()});
    const Batch batch(2);
    const auto& cuts = kCuts.at(static_cast<size_t>(context.rank()));
    for (int64_t step = 0; step < 3; ++step) {
      const auto micro = [&](size_t i) {
        const auto begin = cuts.at(i);
        const auto count = cuts.at(i + 1) - begin;
        const auto output = ddp.forward(
            [&] { return ours(batch.input.narrow(0, begin, count)); });
        window.weigh(output.square().sum(), count).backward();
      };
      {
        const auto no_sync = ddp.no_sync();
        micro(0);
      }
      micro(1);
      window.finish();
      (whole(batch.input).square().sum() / 12).backward();
      check_close(
          "gradients",
          difference(gradients_of(*ours), gradients_of(*whole)),
          1e-5);
      ddp.zero_grad();
      whole->zero_grad();
    }
  });
}

// Summed in FP32 on each rank, and sent once.
TEST(TrainingLoopSymptoms, LongSumsOf16BitGradientsOfRanksDoNotStall) {
  spawn_threads(2, [](const Context& context) {
    const auto weight = at::ones({3}, at::kBFloat16).requires_grad_(true);
    GradientAccumulation window(
        {weight},
        {.micro_batches = 1024,
         .expected_count = 2048,
         .sum_over_ranks = sum_over_ranks(context)});
    const double slope = context.rank() == 0 ? 0x1p-10 : 3 * 0x1p-10;
    for (int i = 0; i < 1024; ++i) {
      window.weigh((weight * slope).sum().to(at::kFloat), 1).backward();
    }
    weight.mutable_grad() = sum_over_ranks(context)(weight.grad());
    window.finish();
    TORCH_CHECK(weight.grad().scalar_type() == at::kFloat);
    TORCH_CHECK(weight.grad().equal(at::full({3}, 0x1p-9F)), weight.grad());
  });
}

TEST(TrainingLoopSymptoms, WeightsLoadedUnderDdpAreThoseThatAreTrained) {
  for (const bool views : {false, true}) {
    spawn_threads(2, [&](const Context& context) {
      SmallNet ours(true);
      DistributedDataParallel ddp(
          *ours, context, many_buckets({.gradient_as_bucket_view = views}));
      optim::AdamW optimizer(optim::named(*ours), {.lr = 0.01});
      const Batch batch(2);
      const auto mine = batch.of(context.rank()).input;
      const auto backward = [&] {
        ddp.forward([&] { return ours(mine); }).square().mean().backward();
      };
      backward();
      optimizer.step(); // buckets and masters are there
      ddp.zero_grad();

      SmallNet other(true);
      {
        const at::NoGradGuard no_grad;
        for (auto& parameter : other->parameters()) {
          parameter.mul_(-0.5);
        }
      }
      io::load_module_state(*ours, io::module_state(*other));
      const auto loaded = copies(ours->parameters());
      check_close("loaded", difference(loaded, copies(other->parameters())), 0);
      backward();
      // Of the two ranks' parts, from the loaded weights.
      for (int rank = 0; rank < 2; ++rank) {
        (other(batch.of(rank).input).square().mean() / 2).backward();
      }
      check_close(
          "gradients", difference(gradients_of(*ours), gradients_of(*other)));
    });
  }
}

void check_same(const io::StateDict& found, const io::StateDict& expected) {
  TORCH_CHECK(found.size() == expected.size());
  for (const auto& [name, value] : expected.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    TORCH_CHECK(
        tensor != nullptr
            ? found.tensor(name).equal(*tensor)
            : io::describe(*found.find(name)) == io::describe(value),
        name,
        " is not the same");
  }
}

TEST(TrainingLoopSymptoms, ResumedRunOfTwoRanksIsTheRunThatItWas) {
  const io::TemporaryFolder folder;
  const auto path = [&](const Context& context) {
    return folder.path() + "/rank-" + std::to_string(context.rank());
  };
  std::vector<io::StateDict> whole(2);
  spawn_threads(2, [&](const Context& context) {
    RankRun run(context);
    run.train(11);
    whole[static_cast<size_t>(context.rank())] = run.state.state_dict();
  });
  EXPECT_FALSE(whole[0].tensor("rng.cpu").equal(whole[1].tensor("rng.cpu")));
  EXPECT_EQ(whole[0].real("scaler.scale"), whole[1].real("scaler.scale"));
  for (const int64_t stop : {1, 5, 6}) {
    spawn_threads(2, [&](const Context& context) {
      RankRun run(context);
      run.train(stop);
      io::save_checkpoint(path(context), run.state.state_dict());
    });
    spawn_threads(2, [&](const Context& context) {
      RankRun run(context);
      run.state.load_state_dict(io::load_checkpoint(path(context)).state);
      run.train(11 - stop);
      check_same(
          run.state.state_dict(), whole[static_cast<size_t>(context.rank())]);
    });
  }
}

} // namespace
} // namespace ampkit::dist
