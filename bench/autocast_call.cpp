#include <ampkit/amp/autocast.h>
#include <torch/torch.h>

#include "worker.h"

namespace ampkit::bench {
namespace {

constexpr int64_t kCalls = 20000;

// peer/autocast_call.py: what a region around one small product costs, beyond
// the product itself. Its inputs are 16-bit already, so nothing is cast.
class AutocastCall : public Worker {
 public:
  nlohmann::json check() override {
    return {{"sum of the product", region().sum().item<double>()}};
  }

  double run() override {
    const double with = seconds_per_call([this] { region(); }, kCalls);
    const double without = seconds_per_call([this] { product(); }, kCalls);
    return with - without;
  }

 private:
  torch::Tensor product() const { return torch::mm(a_, b_); }
  torch::Tensor region() const {
    Autocast autocast(torch::kCPU, torch::kBFloat16);
    return product();
  }

  torch::NoGradGuard no_grad_;
  torch::Tensor a_ = torch::randn({8, 8}).to(torch::kBFloat16);
  torch::Tensor b_ = torch::randn({8, 8}).to(torch::kBFloat16);
};

std::unique_ptr<Worker> make_autocast_call(
    std::span<const std::string> /*args*/) {
  at::set_num_threads(1);
  torch::manual_seed(0);
  return std::make_unique<AutocastCall>();
}

const Registration kAutocastCall{"autocast_call", make_autocast_call};

} // namespace
} // namespace ampkit::bench
