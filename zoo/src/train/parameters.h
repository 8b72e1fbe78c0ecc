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

/// Stores the weights of `module` in `precision.parameters`. Batch norms stay
/// in fp32: LibTorch's kernels want their weights in the dtype of the running
/// statistics.
void store_parameters(torch::nn::Module& module, const Precision& precision);

/// The optimizer of the configuration. Matrices and kernels decay; biases and
/// normalisation weights do too if `config.decay_all`.
std::unique_ptr<optim::FusedOptimizer> make_optimizer(
    const OptimizerConfig& config, const torch::nn::Module& module);

} // namespace ampkit::zoo
