#include <ampkit/zoo/models/model.h>

#include <array>
#include <string_view>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "models/resnet.h"

namespace ampkit::zoo {
namespace {

struct Entry {
  std::string_view name;
  ResNetShape shape;
};

const std::array<Entry, 4>& entries() {
  static const std::array<Entry, 4> instance{
      {{"resnet18", {.blocks = {2, 2, 2, 2}}},
       {"resnet34", {.blocks = {3, 4, 6, 3}}},
       {"resnet50", {.blocks = {3, 4, 6, 3}, .bottleneck = true}},
       {"resnet_small",
        {.blocks = {1, 1, 1},
         .width = 32,
         .stem_kernel = 3,
         .max_pool = false}}}};
  return instance;
}

ResNetShape shape_of(const ModelOptions& options) {
  for (const auto& [name, known] : entries()) {
    if (name != options.name) {
      continue;
    }
    auto shape = known;
    shape.in_channels = options.in_channels;
    shape.num_classes = options.num_classes;
    if (shape.max_pool && options.stem == Stem::small) {
      shape.stem_kernel = 3;
      shape.stem_stride = 1;
      shape.max_pool = false;
    }
    return shape;
  }
  TORCH_CHECK_VALUE(
      false,
      "make_model: unknown name, got '",
      options.name,
      "'; known are ",
      c10::Join(", ", model_names()));
}

} // namespace

Model make_model(const ModelOptions& options) {
  TORCH_CHECK_VALUE(
      options.in_channels >= 1,
      "make_model: in_channels must be >= 1, got ",
      options.in_channels);
  TORCH_CHECK_VALUE(
      options.num_classes >= 1,
      "make_model: num_classes must be >= 1, got ",
      options.num_classes);
  auto network = std::make_shared<ResNet>(shape_of(options));
  return {
      network, [network](const at::Tensor& x) { return network->forward(x); }};
}

const std::vector<std::string>& model_names() {
  static const auto names = [] {
    std::vector<std::string> result;
    for (const auto& entry : entries()) {
      result.emplace_back(entry.name);
    }
    return result;
  }();
  return names;
}

int64_t count_parameters(const Model& model) {
  int64_t count = 0;
  for (const auto& parameter : model.module->parameters()) {
    count += parameter.numel();
  }
  return count;
}

} // namespace ampkit::zoo
