#pragma once

#include <vector>

#include <torch/torch.h>

namespace ampkit {

/// x + fc2(dropout(gelu(fc1(norm(x))))), width 32, counting its calls.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    norm = register_module(
        "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    fc1 = register_module("fc1", torch::nn::Linear(32, 128));
    drop = register_module("drop", torch::nn::Dropout(0.3));
    fc2 = register_module("fc2", torch::nn::Linear(128, 32));
  }
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    auto hidden = fc1->forward(norm->forward(x));
    dtypes.push_back(hidden.scalar_type());
    hidden = drop->forward(torch::gelu(hidden));
    return x + fc2->forward(hidden);
  }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear fc1{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::Linear fc2{nullptr};
  int calls = 0;
  std::vector<at::ScalarType> dtypes; // of fc1's output, call by call
};
TORCH_MODULE(Block);

inline std::vector<Block> make_blocks(size_t count) {
  torch::manual_seed(3);
  std::vector<Block> blocks(count);
  for (Block& block : blocks) {
    block = Block();
  }
  return blocks;
}

} // namespace ampkit
