#include <ampkit/zoo/data/image_dataset.h>
#include <ampkit/zoo/data/image_loader.h>

#include <ATen/Functions.h>

#include <ampkit/io/safetensors.h>

#include "oracle/driver/driver.h"

namespace ampkit::oracle {
namespace {

std::shared_ptr<const zoo::ImageDataset> open(const nlohmann::json& settings) {
  const std::string format = settings.at("format");
  const std::string dir = settings.at("dir");
  const auto split =
      settings.at("split") == "train" ? zoo::Split::train : zoo::Split::test;
  if (format == "idx") {
    return zoo::open_idx(dir, split);
  }
  if (format == "cifar10") {
    return zoo::open_cifar10(dir, split);
  }
  return zoo::open_image_folder(
      dir, {.height = settings.at("height"), .width = settings.at("width")});
}

// image_data SETTINGS OUTPUT: every image and label of a data set, and what a
// loader without shuffling makes of its first `batch` images.
void run_image_data(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 2, "usage: image_data SETTINGS OUTPUT");
  const auto settings = read_json(args[0]);
  const auto dataset = open(settings);
  const auto shape = dataset->shape();
  const auto pixels = at::empty(
      {dataset->size(), shape.channels, shape.height, shape.width}, at::kByte);
  const auto labels = at::empty({dataset->size()}, at::kLong);
  const auto bytes = static_cast<size_t>(shape.numel());
  for (int64_t i = 0; i < dataset->size(); ++i) {
    auto* start = pixels.mutable_data_ptr<uint8_t>() + i * shape.numel();
    dataset->read(i, {start, bytes});
    labels.mutable_data_ptr<int64_t>()[i] = dataset->label(i);
  }
  zoo::ImageLoader loader(
      dataset,
      {.mean = settings.at("mean"), .std = settings.at("std")},
      {.batch_size = settings.at("batch"), .shuffle = false});
  loader.start_epoch(0);
  const auto batch = loader.next();
  const auto found = dataset->normalization();
  io::save_safetensors(
      args[1],
      {{"pixels", pixels},
       {"labels", labels},
       {"input", batch->input},
       {"target", batch->target},
       {"mean", at::tensor(at::ArrayRef<double>(found.mean), at::kDouble)},
       {"std", at::tensor(at::ArrayRef<double>(found.std), at::kDouble)}});
}

const Command kImageData{"image_data", run_image_data};

} // namespace
} // namespace ampkit::oracle
