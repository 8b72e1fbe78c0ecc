#include "train/trainer_setup.h"

#include <torch/torch.h>

namespace ampkit::zoo {
namespace {

template <class... Parts>
void check_config(bool condition, const Parts&... parts) {
  if (!condition) {
    throw ConfigError({__func__, __FILE__, __LINE__}, c10::str(parts...));
  }
}

} // namespace

void check_together(const RunConfig& config, const Precision& precision) {
  check_config(
      config.train.accumulate == 1 || precision.parameters == at::kFloat,
      "train.accumulate: more than 1 batch a step needs weights in fp32, where "
      "gradients are added up, got precision.preset = ",
      config.precision.preset,
      "; take a -mixed preset");
  check_config(
      config.schedule.name != "one-cycle" || config.schedule.warmup > 0,
      "schedule.warmup: one-cycle needs more than 0");
  check_config(
      config.optimizer.name != "sgd" || config.schedule.name != "one-cycle" ||
          !config.schedule.cycle_momentum || config.optimizer.momentum > 0,
      "schedule.cycle_momentum: sgd without momentum has none to move");
}

PrecisionPolicy precision_policy(const PrecisionConfig& config) {
  return config.policy.ends_with(".toml")
             ? load_precision_policy(config.policy)
             : PrecisionPolicy::preset(config.policy);
}

AutocastOptions region_options(
    const PrecisionPolicy& policy, const torch::nn::Module& module) {
  // PyTorch's own is also what regions do without a policy, with less work.
  return policy == PrecisionPolicy() ? AutocastOptions() : policy.bind(module);
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

LoaderOptions training_order(const RunConfig& config) {
  return {
      .batch_size = config.data.batch_size,
      .seed = static_cast<uint64_t>(config.train.seed),
      .threads = static_cast<int>(config.data.workers)};
}

LoaderOptions evaluation_order(const RunConfig& config) {
  return {
      .batch_size = config.data.eval_batch_size,
      .shuffle = false,
      .threads = static_cast<int>(config.data.workers)};
}

GradScalerOptions scaler_options(const PrecisionConfig& config) {
  return {
      .init_scale = config.init_scale,
      .growth_factor = config.growth_factor,
      .backoff_factor = config.backoff_factor,
      .growth_interval = config.growth_interval,
      .min_scale = config.min_scale};
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
