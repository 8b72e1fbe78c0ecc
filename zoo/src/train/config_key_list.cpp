// Every key of the configuration: help, range, choices.

#include <ampkit/amp/precision.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/zoo/models/model.h>

#include "train/config_key_owners.h"
#include "train/config_keys.h"
#include "train/parameters.h"
#include "train/schedule.h"

namespace ampkit::zoo {
namespace {

constexpr Range at_least(double low) {
  return {.low = low};
}

constexpr Range more_than(double low) {
  return {.low = low, .low_open = true};
}

constexpr Range between(double low, double high) {
  return {.low = low, .high = high, .low_open = true, .high_open = true};
}

constexpr Range from_to_below(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}

void add_model_keys(std::vector<Key>& keys, RunConfig& c) {
  keys.insert(
      keys.end(),
      {{"model.name", &c.model.name, "network", {}, model_names()},
       {"model.stem",
        &c.model.stem,
        "first layers of a resnet: small for images of 28 or 32 pixels",
        {},
        {"small", "imagenet"}},
       {"model.weights",
        &c.model.weights,
        "safetensors file with weights to start from; empty: random"}});
}

void add_data_keys(std::vector<Key>& keys, RunConfig& c) {
  keys.insert(
      keys.end(),
      {{"data.format",
        &c.data.format,
        "how the files are laid out",
        {},
        {"idx", "cifar10", "folder"}},
       {"data.path", &c.data.path, "folder of the files"},
       {"data.batch_size",
        &c.data.batch_size,
        "images of one forward and backward pass, of all ranks together",
        at_least(1)},
       {"data.eval_batch_size",
        &c.data.eval_batch_size,
        "images of one pass of an evaluation",
        at_least(1)},
       {"data.workers",
        &c.data.workers,
        "threads that read and augment; 0: the training thread does it",
        {.low = 0, .high = 256}},
       {"data.limit",
        &c.data.limit,
        "train on the first so many images; 0: all",
        at_least(0)},
       {"data.eval_limit",
        &c.data.eval_limit,
        "evaluate on the first so many images; 0: all",
        at_least(0)},
       {"data.image_size",
        &c.data.image_size,
        "height and width given to the images of a folder",
        at_least(1)},
       {"data.crop_padding",
        &c.data.crop_padding,
        "shift training images by up to so many pixels",
        at_least(0)},
       {"data.horizontal_flip",
        &c.data.horizontal_flip,
        "mirror half of the training images"},
       {"data.cutout",
        &c.data.cutout,
        "side of a square that is blanked in training images; 0: none",
        at_least(0)}});
}

void add_precision_keys(std::vector<Key>& keys, RunConfig& c) {
  auto& p = c.precision;
  keys.insert(
      keys.end(),
      {{"precision.preset",
        &p.preset,
        "dtypes of the run",
        {},
        trainable_presets(),
        Precision::aliases()},
       {.name = "precision.policy",
        .target = &p.policy,
        .help = "which op and layer runs in which dtype; see `ampkit ops`",
        .choices = PrecisionPolicy::preset_names(),
        .or_toml_file = true},
       {"precision.fp8_recipe",
        &p.fp8_recipe,
        "where the scales of fp8-mixed come from",
        {},
        {"current", "delayed", "row-wise"}},
       {"precision.init_scale",
        &p.init_scale,
        "loss scale of the first step",
        more_than(0)},
       {"precision.growth_factor",
        &p.growth_factor,
        "the scale grows by it after growth_interval clean steps",
        more_than(1)},
       {"precision.backoff_factor",
        &p.backoff_factor,
        "the scale shrinks by it after an overflow",
        between(0, 1)},
       {"precision.growth_interval",
        &p.growth_interval,
        "clean steps in a row before the scale grows",
        at_least(1)},
       {"precision.min_scale",
        &p.min_scale,
        "the scale never falls below",
        more_than(0)},
       {"precision.hysteresis",
        &p.hysteresis,
        "the scale shrinks at so many overflows between two growths, and later",
        at_least(1)},
       {"precision.consecutive_hysteresis",
        &p.consecutive_hysteresis,
        "only overflows in a row count for hysteresis"},
       {"precision.dynamic_scale",
        &p.dynamic_scale,
        "the scale changes; false: it stays init_scale"},
       {"precision.max_consecutive_faults",
        &p.max_consecutive_faults,
        "steps in a row with a loss of inf or NaN before giving up; 0: never",
        at_least(0)}});
}

void add_optimizer_keys(std::vector<Key>& keys, RunConfig& c) {
  auto& o = c.optimizer;
  keys.insert(
      keys.end(),
      {{"optimizer.name", &o.name, "optimizer", {}, optimizer_names()},
       {"optimizer.lr", &o.lr, "highest learning rate", at_least(0)},
       {"optimizer.weight_decay", &o.weight_decay, "weight decay", at_least(0)},
       {"optimizer.decay_all",
        &o.decay_all,
        "decay biases and normalisation weights too"},
       {"optimizer.beta1", &o.beta1, "", from_to_below(0, 1)},
       {"optimizer.beta2", &o.beta2, "", from_to_below(0, 1)},
       {"optimizer.eps", &o.eps, "", at_least(0)},
       {"optimizer.amsgrad", &o.amsgrad, ""},
       {"optimizer.momentum", &o.momentum, "", at_least(0)},
       {"optimizer.dampening", &o.dampening, ""},
       {"optimizer.nesterov", &o.nesterov, ""},
       {"optimizer.lr_decay", &o.lr_decay, "", at_least(0)},
       {"optimizer.initial_accumulator_value",
        &o.initial_accumulator_value,
        "",
        at_least(0)},
       {"optimizer.alpha", &o.alpha, "", from_to_below(0, 1)},
       {"optimizer.centered", &o.centered, ""},
       {"optimizer.beta2_decay", &o.beta2_decay, "", {.high = 0}},
       {"optimizer.d", &o.d, "", at_least(1)},
       {"optimizer.bias_correction", &o.bias_correction, ""},
       {"optimizer.ns_steps", &o.ns_steps, "", from_to_below(0, 100)},
       {"optimizer.adjust_lr",
        &o.adjust_lr,
        "",
        {},
        {"original", "match-rms-adamw"}},
       {"optimizer.adamw_lr",
        &o.adamw_lr,
        "rate of the adamw that muon leaves all but matrices to; 0: lr",
        at_least(0)}});
}

void add_clipping_keys(std::vector<Key>& keys, RunConfig& c) {
  auto& o = c.optimizer;
  keys.insert(
      keys.end(),
      {{"optimizer.max_norm",
        &o.max_norm,
        "clip the gradients' total norm to this; 0: don't",
        at_least(0)},
       {"optimizer.norm_type",
        &o.norm_type,
        "which norm, also of the grad_norm in the log",
        {},
        {"1", "2", "inf"}},
       {"optimizer.clip_value",
        &o.clip_value,
        "limit each gradient's elements to this; 0: don't",
        at_least(0)},
       {"optimizer.clip_factor",
        &o.clip_factor,
        "clip adaptively, to this share of the weights' norms; 0: don't",
        at_least(0)},
       {"optimizer.clip_eps",
        &o.clip_eps,
        "smaller norms of weights count as this in adaptive clipping",
        more_than(0)}});
}

// Those of schedules whose fall begins late, or when it must.
void add_late_schedule_keys(std::vector<Key>& keys, ScheduleConfig& s) {
  keys.insert(
      keys.end(),
      {{"schedule.decay",
        &s.decay,
        "share of the steps in which warmup-stable-decay falls",
        from_to_below(0, 1)},
       {"schedule.decay_shape",
        &s.decay_shape,
        "how warmup-stable-decay falls",
        {},
        {"linear", "cosine", "1-sqrt"}},
       {"schedule.patience",
        &s.patience,
        "evaluations without a better loss before plateau falls",
        at_least(0)},
       {"schedule.threshold",
        &s.threshold,
        "a loss must be better by this share of the best, for plateau",
        at_least(0)},
       {"schedule.cooldown",
        &s.cooldown,
        "evaluations after a fall that plateau does not count",
        at_least(0)}});
}

void add_schedule_keys(std::vector<Key>& keys, RunConfig& c) {
  auto& s = c.schedule;
  keys.insert(
      keys.end(),
      {{"schedule.name",
        &s.name,
        "course of the learning rate",
        {},
        schedule_names()},
       {"schedule.warmup",
        &s.warmup,
        "share of the steps in which the rate rises",
        from_to_below(0, 1)},
       {"schedule.final_factor",
        &s.final_factor,
        "last or lowest learning rate, as a share of the highest",
        {.low = 0, .high = 1, .low_open = true}},
       {"schedule.cycle_momentum",
        &s.cycle_momentum,
        "one-cycle moves momentum or beta1 between 0.95 and 0.85"},
       {"schedule.gamma",
        &s.gamma,
        "step, multi-step and plateau multiply the rate by this",
        between(0, 1)},
       {"schedule.step_size",
        &s.step_size,
        "share of the steps between two falls of step",
        between(0, 1)},
       {"schedule.milestones",
        &s.milestones,
        "where multi-step falls, as shares of the steps",
        between(0, 1)},
       {"schedule.period",
        &s.period,
        "share of the steps to the first restart of cosine-restarts",
        between(0, 1)},
       {"schedule.period_factor",
        &s.period_factor,
        "each period of cosine-restarts is so many times as long as the last",
        at_least(1)},
       {"schedule.power", &s.power, "", at_least(0)}});
  add_late_schedule_keys(keys, s);
}

void add_loop_keys(std::vector<Key>& keys, RunConfig& c) {
  auto& t = c.train;
  keys.insert(
      keys.end(),
      {{"train.epochs", &t.epochs, "passes over the data", at_least(1)},
       {"train.steps",
        &t.steps,
        "optimizer steps; 0: as many as the epochs take",
        at_least(0)},
       {"train.accumulate",
        &t.accumulate,
        "batches whose gradients are added up for one step",
        at_least(1)},
       {"train.label_smoothing",
        &t.label_smoothing,
        "share of the target spread over all classes",
        from_to_below(0, 1)},
       {"train.seed", &t.seed, "of every random number", at_least(0)},
       {"train.device", &t.device, "cpu, cuda or cuda:1"},
       {"train.strategy",
        &t.strategy,
        "how several ranks train together",
        {},
        {"auto", "ddp"}},
       {"train.threads",
        &t.threads,
        "threads inside an op; 0: LibTorch's default",
        at_least(0)},
       {"train.eval_every",
        &t.eval_every,
        "epochs between evaluations",
        at_least(1)},
       {"train.ema_decay",
        &t.ema_decay,
        "share of the old value in the averaged weights; 0: no average",
        from_to_below(0, 1)},
       {"train.patience",
        &t.patience,
        "skipped steps in a row before giving up",
        at_least(1)}});
}

void add_output_keys(std::vector<Key>& keys, RunConfig& c) {
  keys.insert(
      keys.end(),
      {{"checkpoint.every_steps",
        &c.checkpoint.every_steps,
        "save every so many steps, besides each epoch; 0: don't",
        at_least(0)},
       {"checkpoint.keep_last",
        &c.checkpoint.keep_last,
        "checkpoints that are kept, besides the best",
        at_least(1)},
       {"output.dir", &c.output.dir, "folder of all runs"},
       {"output.name",
        &c.output.name,
        "folder of this run; empty: the configuration file's name"},
       {"output.tensorboard",
        &c.output.tensorboard,
        "write a TensorBoard event file"},
       {"output.report", &c.output.report, "write report.html at the end"}});
}

void add_diagnose_keys(std::vector<Key>& keys, RunConfig& c) {
  auto& d = c.diagnose;
  keys.insert(
      keys.end(),
      {{"diagnose.capsules",
        &d.capsules,
        "steps that went wrong that are kept, to be replayed; 0: none",
        at_least(0)},
       {"diagnose.capsule_skips",
        &d.capsule_skips,
        "keep the step skipped as the so-manieth in a row; 0: never",
        at_least(0)},
       {"diagnose.capsule_mb",
        &d.capsule_mb,
        "10^6 bytes that they may take together",
        {.low = 1, .high = 1e9}},
       {"diagnose.capture",
        &d.capture,
        "a step to keep whatever comes of it; 0: none",
        at_least(0)},
       {"diagnose.flight_steps",
        &d.flight_steps,
        "last steps in the flight recorder; 0: none",
        {.low = 0, .high = 1e6}},
       {"diagnose.inject",
        &d.inject,
        "faults to plant, as in `overflow at=fc step=40`, with ; between"}});
}

} // namespace

std::vector<Key> keys_of(RunConfig& config) {
  std::vector<Key> keys;
  add_model_keys(keys, config);
  add_data_keys(keys, config);
  add_precision_keys(keys, config);
  add_optimizer_keys(keys, config);
  add_clipping_keys(keys, config);
  add_schedule_keys(keys, config);
  add_loop_keys(keys, config);
  add_diagnose_keys(keys, config);
  add_output_keys(keys, config);
  set_owners(keys);
  return keys;
}

} // namespace ampkit::zoo
