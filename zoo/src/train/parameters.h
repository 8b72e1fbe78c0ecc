#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ampkit/amp/precision.h>
#include <ampkit/optim/fused_optimizer.h>
#include <ampkit/zoo/train/config.h>
#include <torch/torch.h>

namespace ampkit::zoo {

/// The presets that a Trainer carries out: all but those whose masters
/// ampkit's optimizers can't split.
std::vector<std::string> trainable_presets();

/// What OptimizerConfig::name may be.
std::vector<std::string> optimizer_names();

/// The optimizer of the configuration; for "muon" one of the matrices and, if
/// there is anything else, an AdamW for the rest. Matrices and kernels decay;
/// biases and normalisation weights do too if `config.decay_all`. Throws
/// ConfigError if there is no matrix for muon.
std::vector<std::unique_ptr<optim::FusedOptimizer>> make_optimizers(
    const OptimizerConfig& config, const torch::nn::Module& module);

} // namespace ampkit::zoo
