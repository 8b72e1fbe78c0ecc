#include <ampkit/zoo/data/image_loader.h>

#include <atomic>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <ampkit/error.h>

#include "data/augment.h"
#include "data/batch_plan.h"
#include "data/prefetcher.h"

namespace ampkit::zoo {

class ImageLoader::Impl {
 public:
  Impl(
      std::shared_ptr<const ImageDataset> dataset,
      const AugmentOptions& augment,
      const LoaderOptions& options);

  void start_epoch(int64_t epoch, int64_t first_batch);
  std::optional<Batch> next();
  int64_t batches() const {
    return detail::count_batches(options_, dataset_->size());
  }
  const Normalization& normalization() const {
    return augmenter_.normalization();
  }
  io::StateDict state_dict() const;
  void load_state_dict(const io::StateDict& state);

 private:
  using Order = std::vector<int64_t>;

  Batch make(
      const Order& order,
      int64_t epoch,
      int64_t batch,
      const std::atomic<bool>& cancelled) const;
  io::StateDict identity() const;

  std::shared_ptr<const ImageDataset> dataset_;
  LoaderOptions options_;
  detail::Augmenter augmenter_;
  int64_t epoch_ = -1; // none yet
  int64_t batch_ = 0; // the next one
  std::shared_ptr<const Order> order_;
  // Last: its threads use the members above.
  std::optional<detail::Prefetcher> prefetcher_;
};

namespace {

// Before anything is built from it.
const ImageDataset& checked(
    const ImageDataset* dataset, const LoaderOptions& options) {
  TORCH_CHECK_VALUE(
      dataset != nullptr, "ImageLoader: dataset is null; open one first");
  detail::check_options(options, dataset->size());
  return *dataset;
}

} // namespace

ImageLoader::Impl::Impl(
    std::shared_ptr<const ImageDataset> dataset,
    const AugmentOptions& augment,
    const LoaderOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      augmenter_(checked(dataset_.get(), options), augment, options.seed) {
  if (options.threads > 0) {
    prefetcher_.emplace(options.threads, options.prefetch_batches);
  }
}

void ImageLoader::Impl::start_epoch(int64_t epoch, int64_t first_batch) {
  TORCH_CHECK_VALUE(
      epoch >= 0, "ImageLoader::start_epoch: epoch must be >= 0, got ", epoch);
  TORCH_CHECK_VALUE(
      first_batch >= 0 && first_batch <= batches(),
      "ImageLoader::start_epoch: first_batch must be in [0, ",
      batches(),
      "], got ",
      first_batch);
  auto order = std::make_shared<const Order>(
      detail::epoch_order(options_, dataset_->size(), epoch));
  if (prefetcher_) {
    prefetcher_->start(
        [this, order, epoch](
            int64_t batch, const std::atomic<bool>& cancelled) {
          return make(*order, epoch, batch, cancelled);
        },
        first_batch,
        batches());
  }
  order_ = std::move(order);
  epoch_ = epoch;
  batch_ = first_batch;
}

std::optional<Batch> ImageLoader::Impl::next() {
  TORCH_CHECK(
      epoch_ >= 0, "ImageLoader::next: no epoch yet; call start_epoch first");
  if (batch_ == batches()) {
    return std::nullopt;
  }
  std::optional<Batch> result;
  if (prefetcher_) {
    result = prefetcher_->next();
  } else {
    const std::atomic<bool> cancelled = false;
    result = make(*order_, epoch_, batch_, cancelled);
  }
  ++batch_;
  return result;
}

Batch ImageLoader::Impl::make(
    const Order& order,
    int64_t epoch,
    int64_t batch,
    const std::atomic<bool>& cancelled) const {
  const auto piece = detail::piece_of_batch(options_, dataset_->size(), batch);
  const ImageShape shape = dataset_->shape();
  const auto on_cpu = at::TensorOptions(at::kCPU);
  Batch result{
      at::empty(
          {piece.size(), shape.channels, shape.height, shape.width},
          on_cpu.dtype(at::kFloat)),
      at::empty({piece.size()}, on_cpu.dtype(at::kLong)),
      detail::images_of_batch(options_, dataset_->size(), batch),
      !piece.repeated};
  auto* input = result.input.mutable_data_ptr<float>();
  auto* target = result.target.mutable_data_ptr<int64_t>();
  std::vector<uint8_t> pixels(static_cast<size_t>(shape.numel()));
  for (int64_t i = 0; i < piece.size() && !cancelled; ++i) {
    const int64_t index = order[static_cast<size_t>(piece.begin + i)];
    dataset_->read(index, pixels);
    augmenter_.run(pixels, epoch, index, input + i * shape.numel());
    target[i] = dataset_->label(index);
  }
  return result;
}

// What the sequence of batches depends on, but for the augmentation.
io::StateDict ImageLoader::Impl::identity() const {
  io::StateDict state;
  state.set("images", dataset_->size());
  state.set("images_per_step", detail::images_per_step(options_));
  state.set("shuffle", options_.shuffle);
  state.set("drop_last", options_.drop_last);
  state.set("seed", static_cast<int64_t>(options_.seed));
  return state;
}

io::StateDict ImageLoader::Impl::state_dict() const {
  io::StateDict state = identity();
  state.set("epoch", epoch_);
  state.set("batch", batch_);
  return state;
}

void ImageLoader::Impl::load_state_dict(const io::StateDict& state) {
  const io::StateDict expected = identity();
  for (const auto& [name, value] : expected.entries()) {
    const io::StateValue* found = state.find(name);
    AMPKIT_CHECK_CHECKPOINT(
        found != nullptr && io::describe(*found) == io::describe(value),
        "ImageLoader::load_state_dict: ",
        name,
        " was ",
        found == nullptr ? "not saved" : io::describe(*found),
        " when the state was saved and is ",
        io::describe(value),
        " here, so that the batches would be others; use the settings of the "
        "run that is resumed");
  }
  const int64_t epoch = state.integer("epoch");
  const int64_t batch = state.integer("batch");
  if (epoch >= 0) {
    start_epoch(epoch, batch);
  } else {
    epoch_ = -1;
    batch_ = 0;
  }
}

ImageLoader::ImageLoader(
    std::shared_ptr<const ImageDataset> dataset,
    const AugmentOptions& augment,
    const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), augment, options)) {}

ImageLoader::~ImageLoader() = default;

void ImageLoader::start_epoch(int64_t epoch, int64_t first_batch) {
  impl_->start_epoch(epoch, first_batch);
}

std::optional<Batch> ImageLoader::next() {
  return impl_->next();
}

int64_t ImageLoader::batches_per_epoch() const {
  return impl_->batches();
}

const Normalization& ImageLoader::normalization() const {
  return impl_->normalization();
}

io::StateDict ImageLoader::state_dict() const {
  return impl_->state_dict();
}

void ImageLoader::load_state_dict(const io::StateDict& state) {
  impl_->load_state_dict(state);
}

} // namespace ampkit::zoo
