#include <optional>

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/diagnose/watch.h>
#include <ampkit/optim/adamw.h>
#include <torch/torch.h>

#include "small_gpt.h"
#include "worker.h"

namespace ampkit::bench {
namespace {

// The step of peer/gpt_step.py in bf16, watched every `interval` steps or, if
// that is 0, not at all.
class WatchedStep : public Worker {
 public:
  WatchedStep(int64_t interval, int64_t steps) : steps_(steps) {
    if (interval > 0) {
      watch_.emplace(*gpt_, diagnose::WatchOptions{.interval = interval});
    }
  }

  nlohmann::json check() override {
    return losses([this] { return step(); }, 2);
  }

  double run() override {
    return seconds_per_call([this] { step(); }, steps_);
  }

 private:
  torch::Tensor watched_step() {
    auto watched = watch_->step();
    const auto loss = forward_and_backward();
    const auto result = scaler_.step(optimizer_, {.max_norm = 1.0});
    watched.scaled(scaler_, result);
    scaler_.update();
    const auto finding = watched.finish();
    TORCH_CHECK(!finding.has_value(), "watched_step: a false alarm");
    return loss;
  }

  torch::Tensor forward_and_backward() {
    torch::Tensor loss;
    {
      Autocast autocast(torch::kCPU, precision_);
      loss = gpt_->loss(tokens_, targets_);
    }
    scaler_.scale(loss).backward();
    return loss.detach();
  }

  torch::Tensor step() {
    optimizer_.zero_grad();
    if (watch_.has_value()) {
      return watched_step();
    }
    const auto loss = forward_and_backward();
    scaler_.step(optimizer_, {.max_norm = 1.0});
    scaler_.update();
    return loss;
  }

  int64_t steps_; // a repetition
  Precision precision_ = Precision::bf16_mixed();
  zoo::Gpt gpt_{small_gpt()};
  torch::Tensor tokens_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  torch::Tensor targets_ = torch::randint(0, 1024, {8, 128}, torch::kLong);
  optim::AdamW optimizer_{gpt_->parameters(), {.lr = 1e-4}};
  GradScaler scaler_{precision_};
  std::optional<diagnose::Watch> watch_;
};

// watched_step INTERVAL STEPS
std::unique_ptr<Worker> make_watched_step(std::span<const std::string> args) {
  TORCH_CHECK(args.size() == 2, "watched_step: expected interval and steps");
  at::set_num_threads(2);
  torch::manual_seed(0);
  return std::make_unique<WatchedStep>(
      std::stoll(args[0]), std::stoll(args[1]));
}

const Registration kWatchedStep{"watched_step", make_watched_step};

} // namespace
} // namespace ampkit::bench
