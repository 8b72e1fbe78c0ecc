#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/export.h>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ampkit::zoo {

/// A network for image classification and how to run it. Copies share it.
struct Model {
  /// Parameters and buffers; train() and eval() switch its batch norms.
  std::shared_ptr<torch::nn::Module> module;
  /// Images [n, in_channels, height, width], floating point, to logits
  /// [n, num_classes].
  std::function<at::Tensor(const at::Tensor&)> forward;
};

/// What the first layers of a network do to an image.
enum class Stem {
  imagenet, ///< 7x7 convolution, stride 2, then max pooling, stride 2
  small, ///< 3x3 convolution, stride 1: for images of 28 or 32 pixels
};

/// Which network make_model() makes.
struct ModelOptions {
  /// One of model_names().
  std::string name = "resnet18";
  Stem stem = Stem::imagenet;
  /// Channels of the images; >= 1.
  int64_t in_channels = 3;
  /// Size of the output; >= 1.
  int64_t num_classes = 1000;
};

/// Makes a network and initialises its weights from LibTorch's CPU generator.
///
/// resnet18, resnet34 and resnet50 are torchvision's: the same names in the
/// same order ("layer1.0.downsample.0.weight"), so that its state dicts load,
/// and after the same manual_seed() the same initial weights bit for bit.
/// resnet_small is a residual network of 0.3 million parameters for quick runs
/// on small images: its stem halves the image, whatever `stem` is.
///
/// Throws c10::ValueError if the name is unknown or a number is out of range.
///
/// Source: https://arxiv.org/abs/1512.03385
AMPKIT_API Model make_model(const ModelOptions& options);

/// The names that make_model() knows.
AMPKIT_API const std::vector<std::string>& model_names();

/// How many numbers are trained.
AMPKIT_API int64_t count_parameters(const Model& model);

} // namespace ampkit::zoo
