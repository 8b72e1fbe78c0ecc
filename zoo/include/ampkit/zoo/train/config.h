#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include <ampkit/export.h>

namespace ampkit::zoo {

/// A configuration that cannot be read or holds a wrong key or value. The
/// message begins with file and line, or with the override it is about.
class AMPKIT_API ConfigError : public c10::ValueError {
  using ValueError::ValueError;
};

/// [model]: what is trained.
struct ModelConfig {
  std::string name = "resnet_small";
  std::string stem = "small";
  /// A safetensors file with weights to start from; empty: random ones.
  std::string weights;
};

/// [data]: what it is trained on.
struct DataConfig {
  std::string format = "idx";
  std::string path = "/usr/share/datasets/fashion-mnist";
  /// Images of one forward and backward pass, of all ranks together.
  int64_t batch_size = 128;
  int64_t eval_batch_size = 500;
  /// Threads that read and augment; 0: the training thread does it.
  int64_t workers = 1;
  /// Use only so many images of each split; 0: all.
  int64_t limit = 0;
  int64_t eval_limit = 0;
  /// Height and width that an image folder's images get.
  int64_t image_size = 224;
  /// See AugmentOptions; training images only.
  int64_t crop_padding = 0;
  bool horizontal_flip = true;
  int64_t cutout = 0;
};

/// [precision]: which dtype does what, and the loss scale.
struct PrecisionConfig {
  std::string preset = "fp16-mixed";
  /// Which op and layer runs in which dtype: a name of
  /// PrecisionPolicy::preset_names(), or a TOML file.
  std::string policy = "pytorch";
  /// Where the scales of fp8-mixed come from: "current", "delayed" or
  /// "row-wise"; see Fp8Recipe.
  std::string fp8_recipe = "current";
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1.0;
  /// See GradScalerOptions.
  int64_t hysteresis = 1;
  bool consecutive_hysteresis = false;
  bool dynamic_scale = true;
  /// Give up after so many steps in a row whose loss was inf or NaN, or whose
  /// gradients were so before backward; 0: never.
  int64_t max_consecutive_faults = 10;
};

/// [optimizer]
struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 1e-3;
  double weight_decay = 0.01;
  /// Whether biases and normalisation weights decay too.
  bool decay_all = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool amsgrad = false;
  double momentum = 0.9;
  double dampening = 0.0;
  bool nesterov = false;
  double lr_decay = 0.0;
  double initial_accumulator_value = 0.0;
  double alpha = 0.99;
  bool centered = false;
  double beta2_decay = -0.8;
  double d = 1.0;
  bool bias_correction = true;
  int64_t ns_steps = 5;
  /// How muon's step depends on the shape: "original" or "match-rms-adamw".
  std::string adjust_lr = "original";
  /// Learning rate of the AdamW that takes what is no matrix from muon; 0: lr.
  double adamw_lr = 0.0;
  /// Total gradient norm beyond which gradients are scaled down; 0: never.
  double max_norm = 0.0;
  /// Which norm: 1, 2 or infinity.
  double norm_type = 2.0;
  /// Largest magnitude of an element of the gradients; 0: any.
  double clip_value = 0.0;
  /// See AdaptiveClip; 0: no adaptive clipping.
  double clip_factor = 0.0;
  double clip_eps = 1e-3;
};

/// [schedule]: the learning rate over the run, as a factor of optimizer.lr.
struct ScheduleConfig {
  std::string name = "one-cycle";
  /// Share of the steps in which the rate rises.
  double warmup = 0.3;
  /// The last rate, as a share of the highest. The default is PyTorch's for
  /// one-cycle.
  double final_factor = 4e-6;
  /// Whether one-cycle moves momentum, or beta1, between 0.95 and 0.85.
  bool cycle_momentum = true;
  /// What step, multi-step and plateau multiply the rate by.
  double gamma = 0.1;
  /// Share of the steps between two falls of step.
  double step_size = 0.3;
  /// Where multi-step falls, as shares of the steps.
  std::vector<double> milestones = {0.5, 0.75};
  /// Share of the steps to the first restart of cosine-restarts, and how much
  /// longer each period is than the one before.
  double period = 0.25;
  int64_t period_factor = 1;
  /// Of polynomial.
  double power = 1.0;
  /// Share of the steps in which warmup-stable-decay falls, and how: "linear",
  /// "cosine" or "1-sqrt".
  double decay = 0.2;
  std::string decay_shape = "cosine";
  /// Evaluations without a better loss that plateau bears, by which part of the
  /// best a loss must be better, and evaluations that don't count after a fall.
  int64_t patience = 2;
  double threshold = 1e-4;
  int64_t cooldown = 0;
};

/// [train]: how long, and how.
struct LoopConfig {
  int64_t epochs = 3;
  /// Optimizer steps; 0: as many as `epochs` take.
  int64_t steps = 0;
  /// Batches whose gradients are added up for one step.
  int64_t accumulate = 1;
  double label_smoothing = 0.0;
  int64_t seed = 0;
  std::string device = "cpu";
  /// How several ranks train together: "auto", or "ddp", which is what auto
  /// takes where there are several.
  std::string strategy = "auto";
  /// Threads inside an op; 0: LibTorch's default.
  int64_t threads = 0;
  /// Evaluate every so many epochs, and at the end.
  int64_t eval_every = 1;
  /// Share of the old value in the running average of the weights; 0: none.
  double ema_decay = 0.0;
  /// Give up after so many skipped steps in a row.
  int64_t patience = 100;
};

/// [checkpoint]
struct CheckpointConfig {
  /// Save every so many steps besides at the end of each epoch; 0: don't.
  int64_t every_steps = 0;
  int64_t keep_last = 3;
};

/// [diagnose]: what is kept for whom a run went wrong.
struct DiagnoseConfig {
  /// Steps that went wrong that are kept in <run>/capsules; 0: none.
  int64_t capsules = 3;
  /// See diagnose::CapsuleOptions::skips.
  int64_t capsule_skips = 10;
  /// 10^6 bytes that all of them may take.
  int64_t capsule_mb = 4096;
  /// A step to keep whatever comes of it; 0: none.
  int64_t capture = 0;
  /// Last steps in <run>/flight.bin; 0: no file.
  int64_t flight_steps = 256;
  /// Faults to plant, as diagnose::Fault::parse() reads them, separated by ";".
  std::string inject;
};

/// [output]
struct OutputConfig {
  /// Folder of runs.
  std::string dir = "runs";
  /// Folder of this run, in `dir`; empty: the configuration file's name.
  std::string name;
  bool tensorboard = true;
  bool report = true;
};

/// Everything that `ampkit train` can be told. The defaults are those of a
/// short fp16 run on Fashion-MNIST.
struct RunConfig {
  ModelConfig model;
  DataConfig data;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  LoopConfig train;
  CheckpointConfig checkpoint;
  DiagnoseConfig diagnose;
  OutputConfig output;
};

/// Reads a TOML file, then applies `overrides`, each "section.key=value" with a
/// TOML value; quotes around a text may be left out. Every key, type and range
/// is checked. An empty output.name becomes the file's name without ".toml".
///
/// Throws ConfigError: file:line, what is wrong, what was expected and found,
/// and for an unknown key the nearest known one.
AMPKIT_API RunConfig load_config(
    const std::string& path, const std::vector<std::string>& overrides = {});

/// The same for a text; `source` stands for the file's name in messages.
AMPKIT_API RunConfig parse_config(
    std::string_view text,
    const std::string& source,
    const std::vector<std::string>& overrides = {});

/// A file that load_config() reads back to an equal configuration, with every
/// key in it.
AMPKIT_API std::string to_toml(const RunConfig& config);

/// "train.epochs: 3 -> 5" for each key in which the two differ.
AMPKIT_API std::vector<std::string> differences(
    const RunConfig& before, const RunConfig& after);

/// One key as `ampkit train --keys` prints it.
struct KeyHelp {
  std::string name; ///< "train.epochs"
  std::string default_value; ///< as in TOML
  std::string expected; ///< "an integer >= 0"
  std::string help;
};

/// Every key, in the order of to_toml().
AMPKIT_API std::vector<KeyHelp> config_keys();

} // namespace ampkit::zoo
