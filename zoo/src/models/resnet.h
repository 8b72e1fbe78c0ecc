#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

namespace ampkit::zoo {

/// The shape of a residual network of He et al. (2015). A stage halves the
/// image and doubles the channels, except the first.
struct ResNetShape {
  /// Residual blocks of each stage.
  std::vector<int64_t> blocks;
  /// 1x1, 3x3, 1x1 convolutions with four times the channels at the end,
  /// instead of two of 3x3.
  bool bottleneck = false;
  /// Channels of the stem and the first stage.
  int64_t width = 64;
  int64_t stem_kernel = 7;
  int64_t stem_stride = 2;
  bool max_pool = true;
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
};

/// Modules are named, registered and constructed in torchvision's order, on
/// which state dicts and the sequence of random numbers depend.
class ResNet : public torch::nn::Module {
 public:
  explicit ResNet(const ResNetShape& shape);

  torch::Tensor forward(torch::Tensor x);

 private:
  void initialise();

  bool max_pool_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear fc_{nullptr};
};

} // namespace ampkit::zoo
