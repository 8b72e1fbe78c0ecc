#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include <ampkit/error.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/safetensors.h>
#include <ampkit/zoo/train/trainer.h>
#include <torch/torch.h>

namespace ampkit::zoo {
namespace {

namespace fs = std::filesystem;
using Dataset = std::shared_ptr<const ImageDataset>;

Dataset open_folder(
    const DataConfig& config, std::initializer_list<const char*> names) {
  const ImageFolderOptions options{
      .height = config.image_size, .width = config.image_size};
  for (const char* name : names) {
    const auto path = fs::path(config.path) / name;
    if (fs::is_directory(path)) {
      return open_image_folder(path.string(), options);
    }
  }
  throw DataError(
      {__func__, __FILE__, __LINE__},
      c10::str(
          "open_data: no folder '",
          *names.begin(),
          "' in data.path, got ",
          config.path,
          "; a folder data set has train/<class>/*.jpg and val/<class>/*.jpg"));
}

Dataset open_split(const DataConfig& config, Split split) {
  if (config.format == "idx") {
    return open_idx(config.path, split);
  }
  if (config.format == "cifar10") {
    return open_cifar10(config.path, split);
  }
  return split == Split::train ? open_folder(config, {"train"})
                               : open_folder(config, {"val", "test"});
}

Dataset cut(Dataset dataset, int64_t limit) {
  const auto count = std::min(limit, dataset->size());
  return limit == 0 ? dataset : first_images(std::move(dataset), count);
}

void load_weights(torch::nn::Module& module, const std::string& path) {
  io::StateDict state;
  for (auto& [name, tensor] : io::load_safetensors(path)) {
    state.set(name, tensor);
  }
  try {
    io::load_module_state(module, state, {.convert_dtype = true});
  } catch (const CheckpointError&) {
    throw;
  } catch (const c10::Error& error) {
    AMPKIT_CHECK_CHECKPOINT(
        false, "model.weights: ", path, " does not fit: ", error.msg());
  }
}

} // namespace

TrainingData open_data(const DataConfig& config) {
  TrainingData data{
      .train = cut(open_split(config, Split::train), config.limit),
      .eval = cut(open_split(config, Split::test), config.eval_limit)};
  TORCH_CHECK_VALUE(
      data.train->shape() == data.eval->shape() &&
          data.train->num_classes() == data.eval->num_classes(),
      "open_data: the training and test images of ",
      config.path,
      " differ in size or number of classes");
  return data;
}

Model make_model(const RunConfig& config, const TrainingData& data) {
  torch::manual_seed(static_cast<uint64_t>(config.train.seed));
  auto model = make_model(ModelOptions{
      .name = config.model.name,
      .stem = config.model.stem == "small" ? Stem::small : Stem::imagenet,
      .in_channels = data.train->shape().channels,
      .num_classes = data.train->num_classes()});
  if (!config.model.weights.empty()) {
    load_weights(*model.module, config.model.weights);
  }
  return model;
}

} // namespace ampkit::zoo
