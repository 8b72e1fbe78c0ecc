#include "gpt.h"

namespace ampkit::bench {
namespace {

namespace nn = torch::nn;

nn::LayerNorm layer_norm(int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}));
}

class Block : public nn::Module {
 public:
  Block(int64_t width, int64_t heads) : heads_(heads) {
    norm1_ = register_module("norm1", layer_norm(width));
    qkv_ = register_module("qkv", nn::Linear(width, 3 * width));
    out_ = register_module("out", nn::Linear(width, width));
    norm2_ = register_module("norm2", layer_norm(width));
    up_ = register_module("up", nn::Linear(width, 4 * width));
    down_ = register_module("down", nn::Linear(4 * width, width));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = x + out_->forward(attention(qkv_->forward(norm1_->forward(x))));
    const auto hidden = up_->forward(norm2_->forward(x));
    return x + down_->forward(at::gelu(hidden, "tanh"));
  }

 private:
  torch::Tensor attention(const torch::Tensor& qkv) const {
    const auto batch = qkv.size(0);
    const auto length = qkv.size(1);
    const auto heads =
        qkv.view({batch, length, 3, heads_, -1}).permute({2, 0, 3, 1, 4});
    const auto y = at::scaled_dot_product_attention(
        heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    return y.transpose(1, 2).reshape({batch, length, -1});
  }

  int64_t heads_;
  nn::LayerNorm norm1_{nullptr};
  nn::LayerNorm norm2_{nullptr};
  nn::Linear qkv_{nullptr};
  nn::Linear out_{nullptr};
  nn::Linear up_{nullptr};
  nn::Linear down_{nullptr};
};

} // namespace

// Modules are made in the order in which Python draws its random numbers.
Gpt::Gpt(const GptShape& shape)
    : tokens_(shape.vocabulary, shape.width),
      positions_(shape.length, shape.width) {
  register_module("tokens", tokens_);
  register_module("positions", positions_);
  for (int64_t i = 0; i < shape.layers; ++i) {
    blocks_->push_back(std::make_shared<Block>(shape.width, shape.heads));
  }
  register_module("blocks", blocks_);
  norm_ = register_module("norm", layer_norm(shape.width));
  head_ = register_module(
      "head",
      nn::Linear(nn::LinearOptions(shape.width, shape.vocabulary).bias(false)));
}

torch::Tensor Gpt::forward(const torch::Tensor& tokens) {
  const auto positions = positions_->weight.narrow(0, 0, tokens.size(1));
  const auto x = tokens_->forward(tokens) + positions;
  return head_->forward(norm_->forward(blocks_->forward(x)));
}

} // namespace ampkit::bench
