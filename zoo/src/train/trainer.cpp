#include <ampkit/zoo/train/trainer.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/cast_parameters.h>
#include <ampkit/amp/fp8.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/gradient_accumulation.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/rng_state.h>
#include <ampkit/optim/ema.h>
#include <ampkit/zoo/data/image_loader.h>
#include <torch/torch.h>

#include "train/evaluate.h"
#include "train/health.h"
#include "train/memory.h"
#include "train/trainer_setup.h"
#include "train/updater.h"

namespace ampkit::zoo {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

} // namespace

struct Trainer::Impl {
  Impl(const RunConfig& c, Model m, const TrainingData& data)
      : config(c),
        precision(Precision::parse(c.precision.preset)),
        policy(precision_policy(c.precision)),
        device(parse_device(c.train.device)),
        model(std::move(m)),
        train_loader(data.train, training_images(c.data), training_order(c)),
        eval_loader(
            data.eval, evaluation_images(train_loader), evaluation_order(c)),
        scaler(precision, scaler_options(c.precision)) {
    model.module->to(device);
    model.module->train();
    cast_parameters(*model.module, precision);
    region = region_options(policy, precision, config.precision, *model.module);
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
    at::Tensor loss;
    at::Tensor scale;
    StepResult result;
  };

  std::vector<Batch> next_window();
  at::Tensor backward(const std::vector<Batch>& window, int64_t samples);
  void train_step(const std::vector<Batch>& window, const TrainerEvents& to);
  void settle(const TrainerEvents& to);
  bool train_epoch(const TrainerEvents& to);
  void end_epoch(const TrainerEvents& to);
  void checkpoint(const TrainerEvents& to, std::optional<double> accuracy);
  EvalRecord evaluate_now();
  Evaluation evaluate_weights() {
    return zoo::evaluate(model, eval_loader, device, precision, region);
  }

  RunConfig config;
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
  std::optional<Pending> pending;
  Clock::time_point step_began;

  // Progress; batch counts those of the epoch.
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t batch = 0;
  int64_t skipped = 0;
  bool finished = false;
};

std::vector<Batch> Trainer::Impl::next_window() {
  std::vector<Batch> window;
  while (static_cast<int64_t>(window.size()) < config.train.accumulate) {
    auto next = train_loader.next();
    if (!next) {
      break;
    }
    window.push_back(std::move(*next));
  }
  return window;
}

// Gradients of the mean over all samples of the window, whatever the sizes of
// its batches. Returns that mean.
at::Tensor Trainer::Impl::backward(
    const std::vector<Batch>& window, int64_t samples) {
  at::Tensor total;
  for (const auto& batch_of_window : window) {
    const auto target =
        batch_of_window.target.to(device, /*non_blocking=*/true);
    const auto input = batch_of_window.input.to(device, /*non_blocking=*/true);
    at::Tensor loss;
    {
      const Autocast autocast(device, precision, region);
      loss = torch::cross_entropy_loss(
          model.forward(input).to(at::kFloat),
          target,
          {},
          at::Reduction::Mean,
          /*ignore_index=*/-100,
          config.train.label_smoothing);
    }
    const auto count = target.size(0);
    scaler.scale(accumulation ? accumulation->weigh_mean(loss, count) : loss)
        .backward();
    const auto share = loss.detach() * (static_cast<double>(count) /
                                        static_cast<double>(samples));
    total = total.defined() ? total + share : share;
  }
  if (accumulation) {
    accumulation->finish();
  }
  return total;
}

void Trainer::Impl::train_step(
    const std::vector<Batch>& window, const TrainerEvents& to) {
  int64_t samples = 0;
  for (const auto& part : window) {
    samples += part.target.size(0);
  }
  const auto loss = backward(window, samples);
  const auto scale = scaler.scale(at::ones({}, loss.options()));
  const auto rate = updater->learning_rate();
  const auto result = updater->step(scaler);
  scaler.update();
  if (region.fp8) {
    region.fp8->update();
  }
  settle(to); // of the step before, while the device works on this one
  const bool stepped = updater->advance(result); // waits if losses are scaled
  if (stepped && ema) {
    ema->update();
  }
  ++step;
  batch += static_cast<int64_t>(window.size());
  skipped += stepped ? 0 : 1;
  const StepRecord record{
      .step = step,
      .epoch = epoch + 1,
      .learning_rate = rate,
      .skipped = !stepped,
      .skipped_total = skipped,
      .samples_per_second =
          static_cast<double>(samples) / seconds_since(step_began)};
  step_began = Clock::now();
  pending = Pending{record, loss, scale, result};
}

void Trainer::Impl::settle(const TrainerEvents& to) {
  if (!pending) {
    return;
  }
  auto record = pending->record;
  record.loss = pending->loss.item<double>(); // waits for that step
  record.scale = pending->scale.item<double>();
  record.grad_norm = pending->result.grad_norm(); // NaN if it was skipped
  if (record.skipped) {
    const auto reason = pending->result.reason();
    record.fault = reason == SkipReason::loss || reason == SkipReason::leftover;
    record.why = pending->result.describe();
  }
  pending.reset();
  health.record(
      std::isfinite(record.loss) && std::isfinite(record.grad_norm),
      record.fault);
  record.faults_total = health.faults();
  record.nan_rate = health.nan_rate();
  record.memory_mb = resident_megabytes();
  if (to.on_step) {
    to.on_step(record);
  }
  check_health(health, record, config);
}

// False if the run was stopped.
bool Trainer::Impl::train_epoch(const TrainerEvents& to) {
  train_loader.start_epoch(epoch, batch);
  step_began = Clock::now();
  while (step < total_steps()) {
    const auto window = next_window();
    if (window.empty()) {
      break;
    }
    train_step(window, to);
    const bool stop = to.should_stop && to.should_stop();
    const auto every = config.checkpoint.every_steps;
    const bool due = every > 0 && step % every == 0 &&
                     batch < train_loader.batches_per_epoch() &&
                     step < total_steps();
    if (stop || due) {
      checkpoint(to, std::nullopt);
    }
    if (stop) {
      return false;
    }
  }
  return true;
}

void Trainer::Impl::end_epoch(const TrainerEvents& to) {
  settle(to);
  ++epoch;
  batch = 0;
  finished = step >= total_steps();
  std::optional<double> accuracy;
  if (finished || epoch % config.train.eval_every == 0) {
    const auto record = evaluate_now();
    accuracy = record.best_accuracy();
    updater->evaluated(record.loss);
    if (to.on_eval) {
      to.on_eval(record);
    }
  }
  checkpoint(to, accuracy);
}

void Trainer::Impl::checkpoint(
    const TrainerEvents& to, std::optional<double> accuracy) {
  settle(to);
  if (to.on_checkpoint) {
    to.on_checkpoint(accuracy);
  }
  step_began = Clock::now();
}

EvalRecord Trainer::Impl::evaluate_now() {
  const auto begin = Clock::now();
  const auto found = evaluate_weights();
  EvalRecord record{
      .step = step,
      .epoch = epoch,
      .loss = found.loss,
      .accuracy = found.accuracy,
      .samples = found.samples};
  if (ema) {
    const auto averaged = ema->swap_in();
    const auto with_average = evaluate_weights();
    record.ema_loss = with_average.loss;
    record.ema_accuracy = with_average.accuracy;
  }
  record.seconds = seconds_since(begin);
  return record;
}

Trainer::Trainer(const RunConfig& config, Model model, const TrainingData& data)
    : impl_(std::make_unique<Impl>(config, std::move(model), data)) {}

Trainer::~Trainer() = default;

StopReason Trainer::run(const TrainerEvents& events) {
  while (!impl_->finished) {
    if (!impl_->train_epoch(events)) {
      return StopReason::stopped;
    }
    impl_->end_epoch(events);
  }
  return StopReason::finished;
}

EvalRecord Trainer::evaluate() {
  return impl_->evaluate_now();
}

io::StateDict Trainer::state_dict() const {
  const auto& t = *impl_;
  io::StateDict state;
  state.set("step", t.step);
  state.set("epoch", t.epoch);
  state.set("batch", t.batch);
  state.set("skipped", t.skipped);
  state.set("finished", t.finished);
  state.set_all("model", io::module_state(*t.model.module));
  t.updater->save_to(state);
  state.set_all("scaler", t.scaler.state_dict());
  state.set_all("health", t.health.state_dict());
  state.set_all("data", t.train_loader.state_dict());
  state.set_all("rng", io::rng_state());
  if (t.ema) {
    state.set_all("ema", t.ema->state_dict());
  }
  if (t.region.fp8) {
    state.set_all("fp8", t.region.fp8->state_dict());
  }
  return state;
}

void Trainer::load_state_dict(const io::StateDict& state) {
  auto& t = *impl_;
  t.train_loader.load_state_dict(state.subset("data"));
  io::load_module_state(*t.model.module, state.subset("model"));
  t.updater->load_from(state);
  t.scaler.load_state_dict(state.subset("scaler"));
  t.health.load_state_dict(state.subset("health"));
  if (t.ema) {
    t.ema->load_state_dict(state.subset("ema"));
  }
  if (t.region.fp8) {
    t.region.fp8->load_state_dict(state.subset("fp8"));
  }
  io::set_rng_state(state.subset("rng"));
  t.step = state.integer("step");
  t.epoch = state.integer("epoch");
  t.batch = state.integer("batch");
  t.skipped = state.integer("skipped");
  t.finished = state.boolean("finished");
}

int64_t Trainer::step() const {
  return impl_->step;
}

int64_t Trainer::total_steps() const {
  return impl_->total_steps();
}

int64_t Trainer::epochs() const {
  const auto per_epoch = impl_->steps_per_epoch();
  return (impl_->total_steps() + per_epoch - 1) / per_epoch;
}

bool Trainer::finished() const {
  return impl_->finished;
}

const PrecisionPolicy& Trainer::policy() const {
  return impl_->policy;
}

} // namespace ampkit::zoo
