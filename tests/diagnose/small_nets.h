#pragma once

#include <cmath>
#include <functional>
#include <memory>

#include <torch/torch.h>

namespace ampkit::diagnose {

using Tap = std::function<at::Tensor(const at::Tensor&)>;

inline at::Tensor unchanged(const at::Tensor& x) {
  return x;
}

/// A small convolutional net for images [n, 1, 8, 8] and 4 classes, with two
/// places where a test can put something.
struct SmallConvNet : torch::nn::Module {
  SmallConvNet() {
    using Options = torch::nn::Conv2dOptions;
    conv1 = register_module(
        "conv1", torch::nn::Conv2d(Options(1, 4, 3).padding(1)));
    bn1 = register_module("bn1", torch::nn::BatchNorm2d(4));
    conv2 = register_module(
        "conv2", torch::nn::Conv2d(Options(4, 8, 3).padding(1)));
    fc = register_module("fc", torch::nn::Linear(8, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto y = torch::relu(bn1->forward(conv1->forward(x)));
    y = torch::max_pool2d(features(y), 2);
    y = torch::relu(conv2->forward(y)).mean({2, 3});
    return fc->forward(pooled(y));
  }
  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  torch::nn::Conv2d conv2{nullptr};
  torch::nn::Linear fc{nullptr};
  Tap features = unchanged; ///< after bn1, before conv2
  Tap pooled = unchanged; ///< after conv2, before fc
};

struct SmallBlock : torch::nn::Module {
  explicit SmallBlock(int64_t width) {
    ln1 = register_module(
        "ln1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    proj = register_module("proj", torch::nn::Linear(width, width));
    ln2 = register_module(
        "ln2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 2 * width));
    down = register_module("down", torch::nn::Linear(2 * width, width));
  }
  at::Tensor attention(const at::Tensor& x) {
    const auto parts = qkv->forward(x).chunk(3, -1);
    const auto width = static_cast<double>(x.size(-1));
    const auto causal =
        torch::ones({x.size(1), x.size(1)}, at::kBool).tril().logical_not();
    auto logits = torch::matmul(parts[0], parts[1].transpose(-1, -2));
    logits = (logits / std::sqrt(width)).masked_fill(causal, -INFINITY);
    return torch::matmul(scores(logits).softmax(-1), parts[2]);
  }
  at::Tensor forward(at::Tensor x) {
    x = x + proj->forward(attention(ln1->forward(x)));
    return x + down->forward(torch::gelu(up->forward(ln2->forward(x))));
  }
  torch::nn::LayerNorm ln1{nullptr};
  torch::nn::Linear qkv{nullptr};
  torch::nn::Linear proj{nullptr};
  torch::nn::LayerNorm ln2{nullptr};
  torch::nn::Linear up{nullptr};
  torch::nn::Linear down{nullptr};
  Tap scores = unchanged; ///< after qkv, before proj
};

/// Two blocks for tokens [n, t] of 32 kinds; logits [n, t, 32].
struct SmallTransformer : torch::nn::Module {
  SmallTransformer() {
    embed = register_module("embed", torch::nn::Embedding(32, 16));
    for (int i = 0; i < 2; ++i) {
      blocks->push_back(std::make_shared<SmallBlock>(16));
    }
    register_module("blocks", blocks);
    head = register_module("head", torch::nn::Linear(16, 32));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    auto x = embed->forward(tokens);
    for (const auto& each : *blocks) {
      x = each->as<SmallBlock>()->forward(x);
    }
    return head->forward(hidden(x));
  }
  SmallBlock& block(size_t i) { return *blocks[i]->as<SmallBlock>(); }
  torch::nn::Embedding embed{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{nullptr};
  Tap hidden = unchanged; ///< after the last block, before head
};

} // namespace ampkit::diagnose
