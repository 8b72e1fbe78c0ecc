#include "models/resnet.h"

#include <memory>
#include <string>
#include <utility>

namespace ampkit::zoo {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(
    int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel)
                        .stride(stride)
                        .padding(kernel / 2)
                        .bias(false));
}

struct BlockShape {
  int64_t in;
  int64_t width;
  int64_t stride;
  bool bottleneck;

  int64_t out() const { return bottleneck ? 4 * width : width; }
};

// What a block's input goes through when the block changes its shape.
nn::Sequential shortcut(const BlockShape& shape) {
  if (shape.stride == 1 && shape.in == shape.out()) {
    return nullptr;
  }
  return nn::Sequential(
      convolution(shape.in, shape.out(), 1, shape.stride),
      nn::BatchNorm2d(shape.out()));
}

class ResidualBlock : public nn::Module {
 public:
  explicit ResidualBlock(const BlockShape& shape) {
    // First, as in torchvision: it draws its random numbers first.
    auto downsample = shortcut(shape);
    if (shape.bottleneck) {
      add(shape.in, shape.width, 1, 1);
      add(shape.width, shape.width, 3, shape.stride);
      add(shape.width, shape.out(), 1, 1);
    } else {
      add(shape.in, shape.width, 3, shape.stride);
      add(shape.width, shape.width, 3, 1);
    }
    if (downsample) {
      downsample_ = register_module("downsample", downsample);
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto y = x;
    for (size_t i = 0; i < layers_.size(); ++i) {
      y = layers_[i].second->forward(layers_[i].first->forward(y));
      if (i + 1 < layers_.size()) {
        y.relu_();
      }
    }
    y += downsample_ ? downsample_->forward(x) : x;
    return y.relu_();
  }

 private:
  void add(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    const auto number = std::to_string(layers_.size() + 1);
    auto conv =
        register_module("conv" + number, convolution(in, out, kernel, stride));
    auto norm = register_module("bn" + number, nn::BatchNorm2d(out));
    layers_.emplace_back(std::move(conv), std::move(norm));
  }

  std::vector<std::pair<nn::Conv2d, nn::BatchNorm2d>> layers_;
  nn::Sequential downsample_{nullptr};
};

} // namespace

ResNet::ResNet(const ResNetShape& shape) : max_pool_(shape.max_pool) {
  conv1_ = register_module(
      "conv1",
      convolution(
          shape.in_channels,
          shape.width,
          shape.stem_kernel,
          shape.stem_stride));
  bn1_ = register_module("bn1", nn::BatchNorm2d(shape.width));
  int64_t channels = shape.width;
  for (size_t stage = 0; stage < shape.blocks.size(); ++stage) {
    nn::Sequential blocks;
    for (int64_t i = 0; i < shape.blocks[stage]; ++i) {
      const BlockShape block{
          .in = channels,
          .width = shape.width << stage,
          .stride = stage > 0 && i == 0 ? 2 : 1,
          .bottleneck = shape.bottleneck};
      blocks->push_back(std::make_shared<ResidualBlock>(block));
      channels = block.out();
    }
    stages_.push_back(
        register_module("layer" + std::to_string(stage + 1), blocks));
  }
  fc_ = register_module("fc", nn::Linear(channels, shape.num_classes));
  initialise();
}

void ResNet::initialise() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<nn::Conv2d>()) {
      nn::init::kaiming_normal_(
          conv->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
  }
}

torch::Tensor ResNet::forward(torch::Tensor x) {
  x = bn1_->forward(conv1_->forward(x)).relu_();
  if (max_pool_) {
    x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  }
  for (auto& stage : stages_) {
    x = stage->forward(x);
  }
  x = torch::adaptive_avg_pool2d(x, {1, 1});
  return fc_->forward(torch::flatten(x, 1));
}

} // namespace ampkit::zoo
