#include <torch/torch.h>

#include "small_gpt.h"
#include "worker.h"

namespace ampkit::bench {
namespace {

constexpr int kSteps = 5;

// peer/recompute_extra_time.py.
class RecomputeExtraTime : public Worker {
 public:
  RecomputeExtraTime() {
    const torch::NoGradGuard no_grad;
    const auto from = plain_->parameters();
    const auto to = recomputing_->parameters();
    for (size_t i = 0; i < from.size(); ++i) {
      to[i].copy_(from[i]);
    }
  }

  nlohmann::json check() override { return {{"loss", step(recomputing_)}}; }

  // Alternating, so that a slow moment meets both alike.
  double run() override {
    double extra = 0;
    for (int i = 0; i < kSteps; ++i) {
      extra -= seconds_per_call([this] { step(plain_); }, 1);
      extra += seconds_per_call([this] { step(recomputing_); }, 1);
    }
    return extra / kSteps;
  }

 private:
  double step(zoo::Gpt& gpt) {
    gpt->zero_grad();
    const auto loss = gpt->loss(tokens_, targets_);
    loss.backward();
    return loss.item<double>();
  }

  zoo::Gpt plain_{small_gpt(false)};
  torch::Tensor tokens_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  zoo::Gpt recomputing_{small_gpt(true)};
};

std::unique_ptr<Worker> make_recompute_extra_time(
    std::span<const std::string> /*args*/) {
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<RecomputeExtraTime>();
}

const Registration kRecomputeExtraTime{
    "recompute_extra_time", make_recompute_extra_time};

} // namespace
} // namespace ampkit::bench
