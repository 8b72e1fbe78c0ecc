#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <ampkit/io/rng_state.h>

#include "amp/precision_controller_impl.h"
#include "amp/trial_pass.h"

namespace ampkit {
namespace {

/// Halvings of the loss before a gradient counts as not finite at any scale.
constexpr std::array kHalvings{0, 4, 8, 12, 16, 24, 32};

bool all_finite(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && !tensor.isfinite().all().item<bool>()) {
      return false;
    }
  }
  return true;
}

double squared_norm(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).square().sum().item<double>();
}

// A gradient that overflows is the scale's fault as long as a smaller one cures
// it, so that smaller ones are tried.
std::vector<at::Tensor> gradients_of(
    const at::Tensor& loss, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const int halvings : kHalvings) {
    const double seed = std::ldexp(1.0, -halvings);
    gradients = torch::autograd::grad(
        {loss},
        parameters,
        {at::full_like(loss, seed)},
        /*retain_graph=*/halvings != kHalvings.back(),
        /*create_graph=*/false,
        /*allow_unused=*/true);
    for (at::Tensor& gradient : gradients) {
      if (gradient.defined()) {
        gradient = gradient.to(at::kFloat) / seed;
      }
    }
    if (all_finite(gradients)) {
      break;
    }
  }
  return gradients;
}

} // namespace

/// Puts back what the passes of a check change, also if `loss` throws.
class PrecisionController::Impl::RestoredState {
 public:
  explicit RestoredState(Impl& impl) : impl_(impl), random_(io::rng_state()) {
    const ModuleBinding& binding = *impl.modules_.binding();
    for (int i = 0; i < binding.size(); ++i) {
      dtypes_.push_back(binding.dtype(i));
    }
    for (const at::Tensor& buffer : impl.buffers_) {
      buffers_.push_back(buffer.detach().clone());
    }
    impl.recorder_->set_mode(LayerRecorder::Mode::ignore, 1);
    impl.modules_.binding()->observer = impl.recorder_.get();
  }
  RestoredState(const RestoredState&) = delete;
  RestoredState& operator=(const RestoredState&) = delete;
  RestoredState(RestoredState&&) = delete;
  RestoredState& operator=(RestoredState&&) = delete;

  ~RestoredState() {
    restore();
    impl_.begin_step();
  }

  void restore() {
    restore_dtypes();
    restore_random_and_buffers();
  }

  void restore_dtypes() {
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      impl_.modules_.binding()->set_dtype(static_cast<int>(i), dtypes_[i]);
    }
  }

  void restore_random_and_buffers() {
    io::set_rng_state(random_);
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      impl_.buffers_[i].copy_(buffers_[i]);
    }
  }

 private:
  Impl& impl_;
  const io::StateDict random_;
  std::vector<at::ScalarType> dtypes_;
  std::vector<at::Tensor> buffers_;
};

void PrecisionController::Impl::plan_rollout() {
  const auto size = static_cast<int64_t>(layers_.size());
  const int64_t group = rollout_.group;
  for (int64_t first = 0; first < size; first += group) {
    groups_.emplace_back(first, std::min(size, first + group));
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].stage == LayerStage::low) {
      layers_[i].stage = LayerStage::waiting;
      modules_.binding()->set_dtype(static_cast<int>(i), at::kFloat);
    }
  }
}

int64_t PrecisionController::Impl::rollout_remaining() const {
  return std::count_if(layers_.begin(), layers_.end(), [](const auto& layer) {
    return layer.stage == LayerStage::waiting;
  });
}

std::vector<at::Tensor> PrecisionController::Impl::trained_parameters() const {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.requires_grad()) {
      result.push_back(parameter);
    }
  }
  return result;
}

bool PrecisionController::Impl::check_rollout(
    const std::function<at::Tensor()>& loss) {
  TORCH_CHECK(
      options_.rollout.has_value(),
      "PrecisionController::check_rollout: no roll-out was asked for; set "
      "PrecisionControllerOptions::rollout");
  if (step_ - last_check_ < rollout_.interval) {
    return false;
  }
  const auto parameters = trained_parameters();
  TORCH_CHECK(
      !parameters.empty(),
      "PrecisionController::check_rollout: no parameter requires a gradient");
  const c10::AutoGradMode grad_mode(true);
  const Pass reference = reference_pass(loss, parameters);
  last_check_ = step_;
  // A batch that is bad in float32 says nothing about 16 bits.
  if (std::isfinite(reference.loss) && all_finite(reference.gradients)) {
    try_group(loss, parameters, reference);
  }
  return true;
}

PrecisionController::Impl::Pass PrecisionController::Impl::reference_pass(
    const std::function<at::Tensor()>& loss,
    const std::vector<at::Tensor>& parameters) {
  const RestoredState restored(*this);
  for (int i = 0; i < modules_.binding()->size(); ++i) {
    modules_.binding()->set_dtype(i, at::kFloat);
  }
  recorder_->take_output_count();
  auto pass = run_pass(loss, parameters);
  TORCH_CHECK(
      recorder_->take_output_count() > 0,
      "PrecisionController::check_rollout: loss() ran no layer of this network "
      "under its policy; open an Autocast with {.modules = "
      "controller.modules()} in it");
  return pass;
}

PrecisionController::Impl::Pass PrecisionController::Impl::run_pass(
    const std::function<at::Tensor()>& loss,
    const std::vector<at::Tensor>& parameters) {
  const TrialPass trial; // its loss may well be inf in 16 bits
  const at::Tensor value = loss();
  TORCH_CHECK(
      value.defined() && value.numel() == 1 && value.requires_grad(),
      "PrecisionController::check_rollout: loss() must return one number that "
      "has a gradient; leave the loss attached to its graph");
  return {
      .loss = value.item<double>(),
      .gradients = gradients_of(value, parameters)};
}

PrecisionController::Impl::Deviation PrecisionController::Impl::compare(
    const Pass& pass,
    const Pass& reference,
    const std::vector<at::Tensor>& parameters) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kTiny = std::numeric_limits<double>::min();
  std::vector<double> error(layers_.size(), 0);
  std::vector<double> size(layers_.size(), 0);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto layer =
        static_cast<size_t>(modules_.binding()->find(parameters[i]));
    const at::Tensor& expected = reference.gradients[i];
    const at::Tensor& found = pass.gradients[i];
    if (expected.defined() && found.defined()) {
      error[layer] += squared_norm(found - expected);
      size[layer] += squared_norm(expected);
    }
  }
  Deviation result{
      .loss = std::abs(pass.loss - reference.loss) /
              std::max(std::abs(reference.loss), kTiny)};
  double all_error = 0;
  double all_size = 0;
  double worst = -1;
  for (size_t i = 0; i < layers_.size(); ++i) {
    all_error += error[i];
    all_size += size[i];
    const double ratio = std::isfinite(error[i])
                             ? error[i] / std::max(size[i], kTiny)
                             : kInfinity;
    if (layers_[i].stage == LayerStage::low && ratio > worst) {
      worst = ratio;
      result.worst = static_cast<int>(i);
    }
  }
  result.gradient = std::sqrt(all_error / std::max(all_size, kTiny));
  return result;
}

bool PrecisionController::Impl::within_bounds(
    const Deviation& deviation) const {
  // False for NaN.
  return deviation.loss <= rollout_.loss_bound &&
         deviation.gradient <= rollout_.gradient_bound;
}

std::string PrecisionController::Impl::text(const Deviation& deviation) const {
  return c10::str(
      within_bounds(deviation) ? "within" : "out of",
      " the bounds of float32: loss off by ",
      deviation.loss,
      " (bound ",
      rollout_.loss_bound,
      "), gradient by ",
      deviation.gradient,
      " (bound ",
      rollout_.gradient_bound,
      ")");
}

void PrecisionController::Impl::try_group(
    const std::function<at::Tensor()>& loss,
    const std::vector<at::Tensor>& parameters,
    const Pass& reference) {
  const auto is_waiting = [&](const Group& group) {
    return std::any_of(
        layers_.begin() + group.first,
        layers_.begin() + group.second,
        [](const auto& layer) { return layer.stage == LayerStage::waiting; });
  };
  while (!groups_.empty() && !is_waiting(groups_.front())) {
    groups_.pop_front(); // of layers that a rule has fixed
  }
  const Group group = groups_.empty() ? Group{0, 0} : groups_.front();
  Deviation deviation;
  {
    const RestoredState restored(*this);
    for (int64_t i = group.first; i < group.second; ++i) {
      if (layers_[static_cast<size_t>(i)].stage == LayerStage::waiting) {
        modules_.binding()->set_dtype(
            static_cast<int>(i), at::ScalarType::Undefined);
      }
    }
    deviation = compare(run_pass(loss, parameters), reference, parameters);
  }
  accept_or_refuse(group, deviation);
}

void PrecisionController::Impl::accept_or_refuse(
    const Group& group, const Deviation& deviation) {
  const bool accepted = within_bounds(deviation);
  if (groups_.empty()) {
    if (!accepted && deviation.worst >= 0) {
      move(deviation.worst, LayerStage::refused, text(deviation));
    }
    return;
  }
  groups_.pop_front();
  if (!accepted && group.second - group.first > 1) {
    const int64_t middle = (group.first + group.second) / 2;
    groups_.emplace_front(middle, group.second);
    groups_.emplace_front(group.first, middle);
    return;
  }
  for (int64_t i = group.first; i < group.second; ++i) {
    if (layers_[static_cast<size_t>(i)].stage == LayerStage::waiting) {
      move(
          static_cast<int>(i),
          accepted ? LayerStage::low : LayerStage::refused,
          text(deviation));
    }
  }
}

} // namespace ampkit
