#pragma once

#include <string>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/zoo/data/image_loader.h>
#include <ampkit/zoo/train/config.h>
#include <c10/core/Device.h>

#include "train/ranks.h"

namespace ampkit::zoo {

/// Throws ConfigError if values do not go together.
void check_together(const RunConfig& config);

/// Throws ConfigError if several ranks can't train so.
void check_ranks(
    const RunConfig& config, const Precision& precision, const Ranks& ranks);

/// The policy that precision.policy names. Throws as load_precision_policy().
PrecisionPolicy precision_policy(const PrecisionConfig& config);

/// Options of the regions that `module` runs in. With `precision` fp8-mixed
/// they have an Fp8Linears; throws ConfigError, with the reason for each
/// weight, if it would take no layer of `module`.
AutocastOptions region_options(
    const PrecisionPolicy& policy,
    const Precision& precision,
    const PrecisionConfig& config,
    const torch::nn::Module& module,
    const Ranks& ranks);

/// Throws ConfigError if the device is unknown or not there.
c10::Device parse_device(const std::string& name);

/// What the parts of a Trainer are made with.
AugmentOptions training_images(const DataConfig& config);
/// Normalised as the training images are.
AugmentOptions evaluation_images(const ImageLoader& train);
/// Throws ConfigError if so many ranks can't share a batch.
LoaderOptions training_order(const RunConfig& config, const Ranks& ranks);
LoaderOptions evaluation_order(const RunConfig& config, const Ranks& ranks);
/// Throws ConfigError if values do not go together.
GradScalerOptions scaler_options(
    const PrecisionConfig& config, const Ranks& ranks);

} // namespace ampkit::zoo
