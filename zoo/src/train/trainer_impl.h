#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ampkit/amp/cast_parameters.h>
#include <ampkit/amp/fp8.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/gradient_accumulation.h>
#include <ampkit/optim/ema.h>
#include <ampkit/zoo/data/image_loader.h>
#include <ampkit/zoo/train/trainer.h>
#include <torch/torch.h>

#include "train/diagnosis.h"
#include "train/evaluate.h"
#include "train/health.h"
#include "train/ranks.h"
#include "train/trainer_setup.h"
#include "train/updater.h"

namespace ampkit::zoo {

struct Trainer::Impl {
  using Clock = std::chrono::steady_clock;

  Impl(
      const RunConfig& c,
      Model m,
      const TrainingData& images,
      std::optional<dist::Context> context)
      : config(c),
        data(images),
        ranks(std::move(context)),
        precision(Precision::parse(c.precision.preset)),
        policy(precision_policy(c.precision)),
        device(parse_device(c.train.device)),
        model(std::move(m)),
        train_loader(
            data.train, training_images(c.data), training_order(c, ranks)),
        eval_loader(
            data.eval,
            evaluation_images(train_loader),
            evaluation_order(c, ranks)),
        scaler(precision, scaler_options(c.precision, ranks)) {
    check_ranks(c, precision, ranks);
    model.module->to(device);
    model.module->train();
    cast_parameters(*model.module, precision);
    diagnosis.emplace(
        config,
        *model.module,
        static_cast<int>(ranks.rank()),
        static_cast<int>(ranks.size()));
    ranks.attach(model, precision);
    region = region_options(
        policy, precision, config.precision, *model.module, ranks);
    updater.emplace(config, precision, *model.module, total_steps());
    scaler.name_parameters(*model.module);
    if (config.train.accumulate > 1) {
      accumulation.emplace(
          model.module->parameters(),
          GradientAccumulationOptions{
              .micro_batches = config.train.accumulate});
    }
    if (config.train.ema_decay > 0) {
      ema = std::make_unique<optim::ExponentialMovingAverage>(
          *model.module,
          optim::ExponentialMovingAverageOptions{
              .decay = config.train.ema_decay, .use_buffers = true});
    }
    train_loader.start_epoch(0);
  }

  int64_t steps_per_epoch() const {
    const auto accumulate = config.train.accumulate;
    return (train_loader.batches_per_epoch() + accumulate - 1) / accumulate;
  }

  int64_t total_steps() const {
    return config.train.steps > 0 ? config.train.steps
                                  : config.train.epochs * steps_per_epoch();
  }

  // A step whose figures were not read from the device yet.
  struct Pending {
    StepRecord record;
    Ranks::Sum loss;
    at::Tensor scale;
    at::Tensor largest_gradient; // scaled; undefined: not asked for
    StepResult result;
  };

  // Of all ranks together.
  static int64_t images_of(const std::vector<Batch>& window) {
    int64_t images = 0;
    for (const auto& part : window) {
      images += part.step_images;
    }
    return images;
  }

  std::vector<Batch> next_window();
  at::Tensor backward(const std::vector<Batch>& window, int64_t samples);
  void train_step(const std::vector<Batch>& window, const TrainerEvents& to);
  diagnose::ReplayedStep step_again(
      diagnose::Watch::Step& watched, const std::vector<Batch>& window);
  io::StateDict dataset_state() const;
  void settle(const TrainerEvents& to);
  bool train_epoch(const TrainerEvents& to);
  void end_epoch(const TrainerEvents& to);
  void checkpoint(const TrainerEvents& to, std::optional<double> accuracy);
  EvalRecord evaluate_now();
  Evaluation evaluate_weights() {
    return zoo::evaluate(model, eval_loader, device, precision, region, ranks);
  }

  RunConfig config;
  TrainingData data;
  Ranks ranks;
  Precision precision;
  PrecisionPolicy policy;
  c10::Device device;
  Model model;
  ImageLoader train_loader;
  ImageLoader eval_loader;
  AutocastOptions region;
  std::optional<Updater> updater;
  GradScaler scaler;
  std::optional<GradientAccumulation> accumulation; // only for more than 1
  std::unique_ptr<optim::ExponentialMovingAverage> ema;
  Health health;
  std::optional<Diagnosis> diagnosis;
  std::optional<Pending> pending;
  Clock::time_point step_began;

  // Progress; batch counts those of the epoch.
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t batch = 0;
  int64_t skipped = 0;
  bool finished = false;
  bool stop_agreed = false; // of several ranks
  at::Tensor random_states; // of several ranks, at the last checkpoint
};

} // namespace ampkit::zoo
