#include <ampkit/zoo/train/capsule_run.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <ampkit/amp/precision_policy.h>
#include <ampkit/error.h>
#include <ampkit/io/module_state.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include "train/diagnosis.h"

namespace ampkit::zoo {
namespace {

/// Stands for a data set of which only the batch in the capsule is left.
class NoImages : public ImageDataset {
 public:
  NoImages(int64_t size, ImageShape shape, int64_t classes)
      : size_(size), shape_(shape), classes_(classes) {}

  int64_t size() const override { return size_; }
  ImageShape shape() const override { return shape_; }
  int64_t num_classes() const override { return classes_; }
  std::vector<std::string> class_names() const override {
    return std::vector<std::string>(static_cast<size_t>(classes_));
  }
  void read(int64_t /*index*/, std::span<uint8_t> /*chw*/) const override {
    throw DataError(
        {__func__, __FILE__, __LINE__},
        "CapsuleRun: there are no images but those of the capsule");
  }
  int64_t label(int64_t /*index*/) const override { return 0; }
  Normalization normalization() const override {
    const auto channels = static_cast<size_t>(shape_.channels);
    return {
        std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0)};
  }

 private:
  int64_t size_;
  ImageShape shape_;
  int64_t classes_;
};

/// A file for as long as it takes to read it.
class TemporaryPolicy {
 public:
  explicit TemporaryPolicy(const std::string& toml) {
    auto pattern =
        (std::filesystem::temp_directory_path() / "ampkit-XXXXXX.toml")
            .string();
    const int file = mkstemps(pattern.data(), 5);
    TORCH_CHECK(file >= 0, "open_capsule: cannot write ", pattern);
    ::close(file);
    path_ = pattern;
    save_precision_policy(
        path_, parse_precision_policy(toml, "the capsule's policy"));
  }
  ~TemporaryPolicy() { ::unlink(path_.c_str()); }
  TemporaryPolicy(const TemporaryPolicy&) = delete;
  TemporaryPolicy& operator=(const TemporaryPolicy&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TrainingData no_images(const diagnose::Capsule& capsule) {
  const auto& state = capsule.state;
  const ImageShape shape{
      state.integer("dataset.channels"),
      state.integer("dataset.height"),
      state.integer("dataset.width")};
  const auto classes = state.integer("dataset.num_classes");
  return {
      std::make_shared<NoImages>(
          state.integer("dataset.images"), shape, classes),
      std::make_shared<NoImages>(1, shape, classes)};
}

bool names_policy(const std::vector<std::string>& overrides) {
  for (const auto& text : overrides) {
    if (text.starts_with("precision.policy")) {
      return true;
    }
  }
  return false;
}

std::unique_ptr<Trainer> make_trainer(
    const CapsuleRun& run, const TrainingData& data, bool own_policy) {
  auto config = run.config;
  if (!own_policy || run.capsule.policy.empty()) {
    return std::make_unique<Trainer>(config, run.model, data);
  }
  const TemporaryPolicy policy(run.capsule.policy);
  config.precision.policy = policy.path();
  return std::make_unique<Trainer>(config, run.model, data);
}

void build(CapsuleRun& run, const std::vector<std::string>& overrides) {
  run.config = parse_config(run.capsule.config, run.capsule.path, overrides);
  run.config.model.weights.clear(); // they are in the capsule
  run.config.data.workers = 0;
  const auto data = no_images(run.capsule);
  run.model = make_model(run.config, data);
  run.trainer = make_trainer(run, data, !names_policy(overrides));
  for (const auto& batch : run.capsule.batches) {
    run.batches.push_back(batch_of(batch));
  }
}

} // namespace

CapsuleRun open_capsule(
    diagnose::Capsule capsule, const std::vector<std::string>& overrides) {
  const auto path = capsule.path;
  AMPKIT_CHECK_CHECKPOINT(
      !capsule.config.empty() && capsule.state.contains("dataset.images"),
      "open_capsule: ",
      path,
      " was not saved by ampkit train: it has no configuration to build its "
      "network from; replay it in the program that saved it, with "
      "ampkit::diagnose::replay()");
  CapsuleRun run{.capsule = std::move(capsule)};
  build(run, overrides);
  return run;
}

diagnose::ReplayResult replay(CapsuleRun& run) {
  return run.trainer->replay(run.capsule);
}

void restore_model(CapsuleRun& run) {
  io::load_module_state(
      *run.model.module,
      run.capsule.state.subset("model"),
      {.convert_dtype = true});
}

} // namespace ampkit::zoo
