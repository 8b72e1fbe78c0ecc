#include <ampkit/zoo/train/trainer.h>

#include <cmath>
#include <utility>

#include <ampkit/amp/autocast.h>
#include <torch/torch.h>

#include "train/health.h"
#include "train/memory.h"
#include "train/trainer_impl.h"

namespace ampkit::zoo {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

} // namespace

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

// Gradients of the mean over all samples of the window on all ranks, whatever
// the sizes of its batches. Returns this rank's part of that mean.
at::Tensor Trainer::Impl::backward(
    const std::vector<Batch>& window, int64_t samples) {
  at::Tensor total;
  for (const auto& batch_of_window : window) {
    diagnosis->micro_batch(&batch_of_window - window.data());
    diagnosis->phase("forward");
    const auto target =
        batch_of_window.target.to(device, /*non_blocking=*/true);
    const auto input = batch_of_window.input.to(device, /*non_blocking=*/true);
    at::Tensor loss;
    {
      const Autocast autocast(device, precision, region);
      loss = torch::cross_entropy_loss(
          ranks.forward(input, &batch_of_window == &window.back())
              .to(at::kFloat),
          target,
          {},
          at::Reduction::Mean,
          /*ignore_index=*/-100,
          config.train.label_smoothing);
    }
    diagnosis->phase("backward");
    const auto mean = ranks.weigh(loss, batch_of_window);
    scaler
        .scale(
            accumulation
                ? accumulation->weigh_mean(mean, batch_of_window.step_images)
                : mean)
        .backward();
    const auto share =
        loss.detach() * (static_cast<double>(batch_of_window.counted_images()) /
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
  const auto samples = images_of(window);
  const auto planting = diagnosis->begin(step + 1, window);
  ranks.at_step(step + 1);
  const auto loss = backward(window, samples);
  diagnosis->phase("update");
  const auto scale = scaler.scale(at::ones({}, loss.options()));
  const auto rate = updater->learning_rate();
  const auto largest = diagnosis->largest_gradient();
  const auto result = updater->step(scaler);
  diagnosis->end(loss, result);
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
  const bool stop = !ranks.alone() && to.should_stop && to.should_stop();
  pending =
      Pending{record, ranks.begin_sum(loss, stop), scale, largest, result};
}

void Trainer::Impl::settle(const TrainerEvents& to) {
  if (!pending) {
    return;
  }
  auto record = pending->record;
  const auto& sums = pending->loss.wait();
  record.loss = sums[0].item<double>(); // waits for that step
  stop_agreed = sums.numel() > 1 && sums[1].item<float>() > 0;
  record.scale = pending->scale.item<double>();
  record.grad_norm = pending->result.grad_norm(); // NaN if it was skipped
  record.grad_max =
      pending->largest_gradient.defined()
          ? pending->largest_gradient.item<double>() / record.scale
          : NAN;
  if (record.skipped) {
    for (const auto& bad : pending->result.non_finite()) {
      record.bad_values += bad.elements;
    }
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
    const bool stop =
        ranks.alone() ? to.should_stop && to.should_stop() : stop_agreed;
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
  if (!ranks.alone()) {
    random_states = ranks.random_states();
  }
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

Trainer::Trainer(
    const RunConfig& config,
    Model model,
    const TrainingData& data,
    std::optional<dist::Context> context)
    : impl_(std::make_unique<Impl>(
          config, std::move(model), data, std::move(context))) {}

Trainer::~Trainer() = default;

StopReason Trainer::run(const TrainerEvents& events) {
  const DiagnosisOfRun diagnosis(
      *impl_->diagnosis, events, impl_->policy, [this] {
        auto state = state_dict();
        state.set_all("dataset", impl_->dataset_state());
        return state;
      });
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
