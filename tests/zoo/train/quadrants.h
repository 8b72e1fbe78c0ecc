#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ampkit/zoo/data/image_dataset.h>
#include <ampkit/zoo/models/model.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/trainer.h>
#include <torch/torch.h>

namespace ampkit::zoo {

/// Grey images of 8 x 8 with one bright quadrant, whose number is the label,
/// on a noise that differs between images.
class Quadrants : public ImageDataset {
 public:
  explicit Quadrants(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  ImageShape shape() const override { return {1, 8, 8}; }
  int64_t num_classes() const override { return 4; }
  std::vector<std::string> class_names() const override {
    return {"0", "1", "2", "3"};
  }
  int64_t label(int64_t index) const override { return index * 7 % 4; }

  void read(int64_t index, std::span<uint8_t> chw) const override {
    for (size_t i = 0; i < chw.size(); ++i) {
      const size_t quadrant = i / 32 * 2 + i % 8 / 4;
      const bool bright = static_cast<int64_t>(quadrant) == label(index);
      const auto noise = (static_cast<size_t>(index) * 31 + i * 17) % 64;
      chw[i] = static_cast<uint8_t>(noise + (bright ? 128 : 0));
    }
  }

 private:
  int64_t size_;
};

inline TrainingData quadrants(int64_t train = 30, int64_t eval = 16) {
  return {
      std::make_shared<Quadrants>(train), std::make_shared<Quadrants>(eval)};
}

/// Without batch norms, so that a batch's gradient is that of its samples.
inline Model linear_model() {
  torch::manual_seed(3);
  auto network =
      torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(64, 4));
  return {network.ptr(), [network](const at::Tensor& x) mutable {
            return network->forward(x);
          }};
}

/// 30 images in batches of 4: 8 steps an epoch, the last with 2 images.
inline RunConfig small_config() {
  RunConfig config;
  config.model.name = "resnet_small";
  config.data.batch_size = 4;
  config.data.workers = 0;
  config.data.horizontal_flip = false;
  config.precision.init_scale = 1024; // no overflow
  config.schedule.name = "constant";
  config.schedule.warmup = 0;
  config.train.epochs = 2;
  config.train.seed = 5;
  return config;
}

/// A copy that further training leaves alone.
inline io::StateDict frozen(const io::StateDict& state) {
  io::StateDict result;
  for (const auto& [name, value] : state.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    result.set(name, tensor ? io::StateValue(tensor->clone()) : value);
  }
  return result;
}

/// The first entry in which two states differ, to the last bit; else "".
inline std::string difference(const io::StateDict& a, const io::StateDict& b) {
  if (a.size() != b.size()) {
    return "number of entries";
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const auto& [name, value] = a.entries()[i];
    const auto& [other_name, other] = b.entries()[i];
    const auto* tensor = std::get_if<at::Tensor>(&value);
    const bool equal = name == other_name &&
                       io::describe(value) == io::describe(other) &&
                       (!tensor || tensor->equal(std::get<at::Tensor>(other)));
    if (!equal) {
      return name;
    }
  }
  return "";
}

} // namespace ampkit::zoo
