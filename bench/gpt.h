#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace ampkit::bench {

/// The sizes of peer/gpt_step.py.
struct GptShape {
  int64_t vocabulary = 1024;
  int64_t width = 256;
  int64_t layers = 4;
  int64_t length = 128;
  int64_t heads = 4;
};

/// Pre-norm transformer of peer/gpt_step.py: after the same manual_seed(), the
/// same initial weights.
class Gpt : public torch::nn::Module {
 public:
  explicit Gpt(const GptShape& shape);

  /// `tokens`: int64 [batch, length]. Returns logits [batch, length,
  /// vocabulary].
  torch::Tensor forward(const torch::Tensor& tokens);

 private:
  torch::nn::Embedding tokens_;
  torch::nn::Embedding positions_;
  torch::nn::Sequential blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

} // namespace ampkit::bench
