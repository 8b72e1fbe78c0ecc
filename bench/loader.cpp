#include <ampkit/zoo/data/image_dataset.h>
#include <ampkit/zoo/data/image_loader.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

constexpr double kMean = 0.286;
constexpr double kDeviation = 0.353;

// peer/loader.py
class Loader : public Worker {
 public:
  nlohmann::json check() override {
    int64_t images = 0;
    int64_t labels = 0;
    double pixels = 0;
    start_epoch();
    while (const auto batch = loader_.next()) {
      images += batch->target.size(0);
      labels += batch->target.sum().item<int64_t>();
      const auto values = batch->input * kDeviation + kMean;
      pixels += values.sum(torch::kDouble).item<double>();
    }
    return {
        {"images of an epoch", images},
        {"sum of the labels", labels},
        {"mean of the pixels", pixels / static_cast<double>(images * 784)}};
  }

  double run() override {
    const auto epoch = [this] {
      start_epoch();
      while (loader_.next()) {
      }
    };
    return seconds_per_call(epoch, 1) / static_cast<double>(dataset_->size());
  }

 private:
  void start_epoch() { loader_.start_epoch(epoch_++); }

  std::shared_ptr<const zoo::ImageDataset> dataset_ =
      zoo::open_idx("/usr/share/datasets/fashion-mnist", zoo::Split::train);
  zoo::ImageLoader loader_{
      dataset_,
      {.crop_padding = 2,
       .horizontal_flip = true,
       .mean = {kMean},
       .std = {kDeviation}},
      {.batch_size = 128, .threads = 2}};
  int64_t epoch_ = 0;
};

std::unique_ptr<Worker> make_loader(std::span<const std::string> /*args*/) {
  at::set_num_threads(2);
  return std::make_unique<Loader>();
}

const Registration kLoader{"loader", make_loader};

} // namespace
} // namespace ampkit::bench
