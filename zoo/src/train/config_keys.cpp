#include "train/config_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include <ampkit/amp/precision.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/zoo/models/model.h>
#include <c10/util/StringUtil.h>
#include <nlohmann/json.hpp>

#include "train/parameters.h"

namespace ampkit::zoo {
namespace {

std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

// TOML tells an integer from a real by its looks.
std::string as_real(double value) {
  auto text = shortest(value);
  const bool real = text.find_first_of(".enf") != std::string::npos;
  return real ? text : text + ".0";
}

std::string as_toml(const KeyTarget& target) {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::decay_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return *value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return std::to_string(*value);
        } else if constexpr (std::is_same_v<T, double>) {
          return as_real(*value);
        } else {
          // A JSON string is a TOML basic string.
          return nlohmann::json(*value).dump();
        }
      },
      target);
}

constexpr Range at_least(double low) {
  return {.low = low};
}

constexpr Range more_than(double low) {
  return {.low = low, .low_open = true};
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
        "images of one forward and backward pass",
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
        {.low = 0, .high = 1, .low_open = true, .high_open = true}},
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
       {"optimizer.beta1",
        &o.beta1,
        "of adam, adamw, lamb and lion",
        from_to_below(0, 1)},
       {"optimizer.beta2",
        &o.beta2,
        "of adam, adamw, lamb and lion",
        from_to_below(0, 1)},
       {"optimizer.eps",
        &o.eps,
        "of adagrad, adam, adamw, lamb and rmsprop",
        at_least(0)},
       {"optimizer.amsgrad", &o.amsgrad, "of adam and adamw"},
       {"optimizer.momentum", &o.momentum, "of rmsprop and sgd", at_least(0)},
       {"optimizer.nesterov", &o.nesterov, "of sgd"},
       {"optimizer.lr_decay", &o.lr_decay, "of adagrad", at_least(0)},
       {"optimizer.alpha", &o.alpha, "of rmsprop", from_to_below(0, 1)},
       {"optimizer.centered", &o.centered, "of rmsprop"},
       {"optimizer.beta2_decay", &o.beta2_decay, "of adafactor", {.high = 0}},
       {"optimizer.d", &o.d, "of adafactor", at_least(1)},
       {"optimizer.max_norm",
        &o.max_norm,
        "clip the gradients' total norm to this; 0: don't",
        at_least(0)}});
}

void add_schedule_keys(std::vector<Key>& keys, RunConfig& c) {
  keys.insert(
      keys.end(),
      {{"schedule.name",
        &c.schedule.name,
        "course of the learning rate",
        {},
        {"constant", "linear", "cosine", "one-cycle"}},
       {"schedule.warmup",
        &c.schedule.warmup,
        "share of the steps in which the rate rises",
        from_to_below(0, 1)},
       {"schedule.final_factor",
        &c.schedule.final_factor,
        "last learning rate, as a share of the highest",
        {.low = 0, .high = 1, .low_open = true}},
       {"schedule.cycle_momentum",
        &c.schedule.cycle_momentum,
        "one-cycle moves momentum or beta1 between 0.95 and 0.85"}});
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

// Insertions, deletions, changes and swaps of neighbours.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(
      a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min(
          {d[i - 1][j] + 1,
           d[i][j - 1] + 1,
           d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

} // namespace

bool Range::contains(double value) const {
  return (low_open ? value > low : value >= low) &&
         (high_open ? value < high : value <= high);
}

std::string Range::to_string() const {
  if (std::isinf(low) && std::isinf(high)) {
    return "";
  }
  if (std::isinf(high)) {
    return (low_open ? "> " : ">= ") + shortest(low);
  }
  if (std::isinf(low)) {
    return (high_open ? "< " : "<= ") + shortest(high);
  }
  return c10::str(
      "in ",
      low_open ? "(" : "[",
      shortest(low),
      ", ",
      shortest(high),
      high_open ? ")" : "]");
}

std::string Key::expected() const {
  if (!choices.empty()) {
    return "one of " + c10::Join(", ", choices) +
           (or_toml_file ? "; or a TOML file" : "");
  }
  static constexpr std::array kNames{
      "true or false", "an integer", "a number", "a text"};
  const auto limits = range.to_string();
  return kNames.at(target.index()) + (limits.empty() ? "" : " " + limits);
}

std::string Key::value() const {
  return as_toml(target);
}

std::vector<Key> keys_of(RunConfig& config) {
  std::vector<Key> keys;
  add_model_keys(keys, config);
  add_data_keys(keys, config);
  add_precision_keys(keys, config);
  add_optimizer_keys(keys, config);
  add_schedule_keys(keys, config);
  add_loop_keys(keys, config);
  add_output_keys(keys, config);
  return keys;
}

std::string nearest(
    const std::string& typed, const std::vector<std::string>& known) {
  std::string best;
  size_t smallest = std::max<size_t>(2, typed.size() / 3) + 1;
  for (const auto& name : known) {
    // The right key in the wrong section is one mistake, however long the
    // section's name.
    const auto found = last_part(name) == last_part(typed)
                           ? std::min<size_t>(1, distance(typed, name))
                           : distance(typed, name);
    if (found < smallest) {
      smallest = found;
      best = name;
    }
  }
  return best;
}

} // namespace ampkit::zoo
