#include "train/diagnosis.h"

#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include <torch/torch.h>

namespace ampkit::zoo {

std::vector<diagnose::Fault> planted_faults(const DiagnoseConfig& config) {
  std::vector<diagnose::Fault> faults;
  std::istringstream texts(config.inject);
  for (std::string text; std::getline(texts, text, ';');) {
    if (text.find_first_not_of(' ') != std::string::npos) {
      faults.push_back(diagnose::Fault::parse(text));
    }
  }
  return faults;
}

io::StateDict state_of(const Batch& batch) {
  io::StateDict state;
  state.set("input", batch.input);
  state.set("target", batch.target);
  state.set("step_images", batch.step_images);
  state.set("counts", batch.counts);
  return state;
}

Batch batch_of(const io::StateDict& state) {
  return {
      .input = state.tensor("input"),
      .target = state.tensor("target"),
      .step_images = state.integer("step_images"),
      .counts = state.boolean("counts")};
}

Diagnosis::Diagnosis(
    const RunConfig& config,
    const torch::nn::Module& module,
    int rank,
    int world_size)
    : config_(config), module_(module), rank_(rank), world_size_(world_size) {
  auto faults = planted_faults(config.diagnose);
  if (!faults.empty()) {
    inject_ =
        std::make_unique<diagnose::Inject>(module, std::move(faults), rank);
  }
}

void Diagnosis::start(
    const TrainerEvents& to,
    const PrecisionPolicy& policy,
    std::function<io::StateDict()> state) {
  to_ = &to;
  if (to.capsule_folder.empty() || config_.diagnose.capsules == 0) {
    return;
  }
  const auto own = rank_ == 0 ? "" : "/rank-" + std::to_string(rank_);
  capsules_ = std::make_unique<diagnose::CapsuleRecorder>(
      to.capsule_folder + own,
      module_,
      std::move(state),
      diagnose::CapsuleOptions{
          .keep_last = config_.diagnose.capsules,
          .skips = config_.diagnose.capsule_skips,
          .max_bytes = config_.diagnose.capsule_mb * 1'000'000,
          .rank = rank_,
          .world_size = world_size_,
          .config = to_toml(config_),
          .policy = to_toml(policy),
          .faults = config_.diagnose.inject,
          .on_note = to.on_note});
}

void Diagnosis::stop() {
  capsules_.reset();
  to_ = nullptr;
}

std::optional<diagnose::Inject::Step> Diagnosis::begin(
    int64_t number, const std::vector<Batch>& window) {
  step_ = number;
  buffers_.clear();
  for (const auto& buffer : module_.buffers()) {
    buffers_.push_back(buffer.detach().clone());
  }
  if (capsules_) {
    const bool asked = to_->should_capture && to_->should_capture();
    if (asked || number == config_.diagnose.capture) {
      capsules_->ask();
    }
    capsules_->begin(number);
    for (const auto& batch : window) {
      capsules_->batch(state_of(batch));
    }
  }
  return plant(number);
}

std::optional<diagnose::Inject::Step> Diagnosis::plant(int64_t number) {
  return inject_ ? std::optional(inject_->step(number)) : std::nullopt;
}

void Diagnosis::end(const at::Tensor& loss, const StepResult& result) {
  if (capsules_) {
    capsules_->end(loss, result);
  }
  mend_buffers(loss);
}

void Diagnosis::mend_buffers(const at::Tensor& loss) const {
  const torch::NoGradGuard no_grad;
  const auto finite = at::isfinite(loss.detach()).all();
  if (finite.is_cpu() && finite.item<bool>()) {
    return;
  }
  const auto now = module_.buffers();
  for (size_t i = 0; i < now.size(); ++i) {
    now[i].copy_(at::where(finite, now[i], buffers_[i]));
  }
}

void Diagnosis::phase(const char* name) const {
  if (to_ != nullptr && to_->on_phase) {
    to_->on_phase(step_, name);
  }
}

void Diagnosis::micro_batch(int64_t number) const {
  if (watched_ != nullptr) {
    watched_->micro_batch(number);
  }
}

at::Tensor Diagnosis::largest_gradient() const {
  if (config_.diagnose.flight_steps == 0) {
    return {};
  }
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> largest;
  for (const auto& parameter : module_.parameters()) {
    if (parameter.grad().defined() && parameter.grad().numel() > 0) {
      largest.push_back(
          at::linalg_vector_norm(
              parameter.grad(), std::numeric_limits<double>::infinity())
              .to(at::kFloat));
    }
  }
  // max() of NaN is NaN: nothing bad is hidden.
  return largest.empty() ? at::Tensor() : at::stack(largest).max();
}

} // namespace ampkit::zoo
