#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ampkit/amp/precision.h>
#include <ampkit/optim/fused_optimizer.h>
#include <ampkit/zoo/train/config.h>
#include <torch/torch.h>

namespace ampkit::zoo {

/// The presets that a Trainer carries out: computing in fp32, fp16 or bf16,
/// with fp32 weights, its own or the optimizer's.
std::vector<std::string> trainable_presets();

/// What OptimizerConfig::name may be.
std::vector<std::string> optimizer_names();

/// The optimizer of the configuration. Matrices and kernels decay; biases and
/// normalisation weights do too if `config.decay_all`.
std::unique_ptr<optim::FusedOptimizer> make_optimizer(
    const OptimizerConfig& config, const torch::nn::Module& module);

} // namespace ampkit::zoo
