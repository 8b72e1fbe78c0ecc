#include "train/trainer_setup.h"

#include <algorithm>

#include <ampkit/amp/fp8.h>
#include <torch/torch.h>

namespace ampkit::zoo {
namespace {

template <class... Parts>
void check_config(bool condition, const Parts&... parts) {
  if (!condition) {
    throw ConfigError({__func__, __FILE__, __LINE__}, c10::str(parts...));
  }
}

void check_scaler(const PrecisionConfig& config) {
  check_config(
      config.hysteresis > 1 || !config.consecutive_hysteresis,
      "precision.consecutive_hysteresis: needs precision.hysteresis of 2 or "
      "more, got ",
      config.hysteresis);
  check_config(
      config.init_scale >= config.min_scale,
      "precision.init_scale: must be >= precision.min_scale = ",
      config.min_scale,
      ", got ",
      config.init_scale);
}

void check_clipping(const OptimizerConfig& config) {
  check_config(
      config.clip_factor == 0 ||
          (config.max_norm == 0 && config.clip_value == 0),
      "optimizer.clip_factor: adaptive clipping does not go together with "
      "optimizer.max_norm or optimizer.clip_value; set those to 0");
}

std::shared_ptr<Fp8Linears> fp8_linears(
    const PrecisionConfig& config,
    const torch::nn::Module& module,
    const Ranks& ranks) {
  Fp8Options options;
  options.reduce_amax = ranks.maximum();
  options.recipe = config.fp8_recipe == "delayed"    ? Fp8Recipe::delayed
                   : config.fp8_recipe == "row-wise" ? Fp8Recipe::row_wise
                                                     : Fp8Recipe::current;
  auto fp8 = std::make_shared<Fp8Linears>(module, options);
  std::string reasons;
  bool any = false;
  for (const auto& layer : fp8->layers()) {
    any = any || layer.excluded.empty();
    reasons += "\n  " + layer.name + ": " + layer.excluded;
  }
  check_config(
      any,
      "precision.preset: fp8-mixed runs linear layers in FP8, and the network "
      "has none that can; take bf16-mixed",
      reasons);
  return fp8;
}

} // namespace

void check_together(const RunConfig& config) {
  check_clipping(config.optimizer);
  check_config(
      config.schedule.name != "one-cycle" || config.schedule.warmup > 0,
      "schedule.warmup: one-cycle needs more than 0");
  const auto& name = config.optimizer.name;
  const bool moves_momentum =
      config.schedule.name == "one-cycle" && config.schedule.cycle_momentum;
  const bool has_momentum = name == "sgd" || name == "rmsprop"
                                ? config.optimizer.momentum > 0
                                : name != "adagrad" && name != "adafactor";
  check_config(
      !moves_momentum || has_momentum,
      "schedule.cycle_momentum: ",
      name,
      name == "sgd" || name == "rmsprop" ? " without momentum" : "",
      " has none to move; set it to false");
}

void check_ranks(
    const RunConfig& config, const Precision& precision, const Ranks& ranks) {
  check_config(
      ranks.alone() || config.train.accumulate == 1 ||
          c10::elementSize(precision.parameters) > 2,
      "train.accumulate: several ranks add up gradients of float32 weights "
      "only, and those of ",
      config.precision.preset,
      " are in 16 bits; take bf16-mixed or fp16-mixed, or set it to 1");
  check_config(
      ranks.alone() || parse_device(config.train.device).is_cpu(),
      "train.device: several ranks train on the cpu only, got ",
      config.train.device);
}

PrecisionPolicy precision_policy(const PrecisionConfig& config) {
  return config.policy.ends_with(".toml")
             ? load_precision_policy(config.policy)
             : PrecisionPolicy::preset(config.policy);
}

AutocastOptions region_options(
    const PrecisionPolicy& policy,
    const Precision& precision,
    const PrecisionConfig& config,
    const torch::nn::Module& module,
    const Ranks& ranks) {
  // PyTorch's own is also what regions do without a policy, with less work.
  auto options =
      policy == PrecisionPolicy() ? AutocastOptions() : policy.bind(module);
  if (precision.compute == at::kFloat8_e4m3fn) {
    options.fp8 = fp8_linears(config, module, ranks);
  }
  return options;
}

AugmentOptions training_images(const DataConfig& config) {
  return {
      .crop_padding = config.crop_padding,
      .horizontal_flip = config.horizontal_flip,
      .cutout = config.cutout};
}

AugmentOptions evaluation_images(const ImageLoader& train) {
  return {.mean = train.normalization().mean, .std = train.normalization().std};
}

LoaderOptions training_order(const RunConfig& config, const Ranks& ranks) {
  check_config(
      config.data.batch_size >= ranks.size(),
      "data.batch_size: ",
      ranks.size(),
      " ranks share a batch and each needs an image of it, got ",
      config.data.batch_size);
  return {
      .batch_size = config.data.batch_size,
      .seed = static_cast<uint64_t>(config.train.seed),
      .threads = static_cast<int>(config.data.workers),
      .rank = ranks.rank(),
      .world_size = ranks.size(),
      .images_per_step = config.data.batch_size};
}

LoaderOptions evaluation_order(const RunConfig& config, const Ranks& ranks) {
  return {
      .batch_size = config.data.eval_batch_size,
      .shuffle = false,
      .threads = static_cast<int>(config.data.workers),
      .rank = ranks.rank(),
      .world_size = ranks.size()};
}

GradScalerOptions scaler_options(
    const PrecisionConfig& config, const Ranks& ranks) {
  check_scaler(config);
  return {
      .init_scale = config.init_scale,
      .growth_factor = config.growth_factor,
      .backoff_factor = config.backoff_factor,
      .growth_interval = config.growth_interval,
      .min_scale = config.min_scale,
      .hysteresis = config.hysteresis,
      .consecutive_hysteresis = config.consecutive_hysteresis,
      .dynamic = config.dynamic_scale,
      // The Trainer stops itself, when it has recorded the last step.
      .max_consecutive_skips = 0,
      .max_consecutive_faults = 0,
      .check_without_scaling = true,
      .agree_over_ranks = ranks.maximum()};
}

c10::Device parse_device(const std::string& name) {
  try {
    const c10::Device device(name);
    check_config(
        !device.is_cuda() || torch::cuda::is_available(),
        "train.device: no CUDA device is usable, got ",
        name);
    return device;
  } catch (const ConfigError&) {
    throw;
  } catch (const c10::Error&) {
    check_config(false, "train.device: expected cpu or cuda, got ", name);
    throw;
  }
}

} // namespace ampkit::zoo
