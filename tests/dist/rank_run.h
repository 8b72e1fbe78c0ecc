#pragma once

#include <cmath>
#include <utility>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/dist/agreement.h>
#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/io/training_state.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/schedule.h>

#include "dist/small_models.h"

namespace ampkit::dist {

/// A rank's whole run: fp16 with a scaler whose ranks agree, dropout, a
/// schedule, and rows of its own in an order of its own.
struct RankRun {
  explicit RankRun(Context given) : context(std::move(given)) {
    context.manual_seed(7 + static_cast<uint64_t>(context.rank()));
    state.add("model", *net);
    state.add("optimizer", optimizer);
    state.add("schedule", schedule);
    state.add("scaler", scaler);
    state.add("step", step);
  }

  void train(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      const auto rows = at::randperm(24).narrow(0, 0, 6);
      const auto input = at::cos(at::arange(192, at::kFloat) * 0.13)
                             .view({24, 8})
                             .index_select(0, rows);
      at::Tensor loss;
      {
        const Autocast autocast(at::kCPU, at::kHalf);
        const auto output = ddp.forward(
            [&] { return net(at::dropout(input, 0.3, /*train=*/true)); });
        loss = output.to(at::kFloat).square().mean();
      }
      // Now and then a rank's loss is not finite.
      const bool bad = step % 4 == 2 && context.rank() == step / 4 % 2;
      scaler.scale(bad ? loss * INFINITY : loss).backward();
      schedule.step(scaler.step(optimizer, {.max_norm = 1.0}));
      scaler.update();
      ddp.zero_grad();
      ++step;
    }
  }

  Context context;
  SmallNet net{true};
  DistributedDataParallel ddp{*net, context};
  optim::AdamW optimizer{optim::named(*net), {.lr = 0.01}};
  optim::StepLR schedule{optimizer, {.step_size = 3, .gamma = 0.5}};
  GradScaler scaler{
      {.init_scale = 0x1p20,
       .growth_interval = 3,
       .agree_over_ranks = max_over_ranks(context)}};
  int64_t step = 0;
  io::TrainingState state;
};

} // namespace ampkit::dist
