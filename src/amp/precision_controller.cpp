#include <ampkit/amp/precision_controller.h>

#include <cmath>

#include <ATen/Functions.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include "amp/precision_controller_impl.h"

namespace ampkit {
namespace {

void check_at_least(int64_t value, int64_t least, const char* field) {
  TORCH_CHECK_VALUE(
      value >= least,
      "PrecisionController: ",
      field,
      " must be >= ",
      least,
      ", got ",
      value);
}

void check_factor(double value, const char* field) {
  TORCH_CHECK_VALUE(
      std::isfinite(value) && value >= 1,
      "PrecisionController: ",
      field,
      " must be finite and >= 1, got ",
      value);
}

void check_share(double value, const char* field) {
  TORCH_CHECK_VALUE(
      value >= 0 && value <= 1,
      "PrecisionController: ",
      field,
      " must be in [0, 1], got ",
      value);
}

void check_bound(double value, const char* field) {
  TORCH_CHECK_VALUE(
      value > 0,
      "PrecisionController: rollout.",
      field,
      " must be > 0, got ",
      value);
}

void check_options(const PrecisionControllerOptions& o) {
  TORCH_CHECK_VALUE(
      o.dtype == at::kHalf || o.dtype == at::kBFloat16,
      "PrecisionController: dtype must be Half or BFloat16, got ",
      o.dtype);
  check_at_least(o.sample_interval, 1, "sample_interval");
  check_at_least(o.sample_elements, 1, "sample_elements");
  check_share(o.overflow_share, "overflow_share");
  check_share(o.underflow_share, "underflow_share");
  check_share(o.subnormal_share, "subnormal_share");
  check_at_least(o.overflow_patience, 1, "overflow_patience");
  check_at_least(o.fail_window, 1, "fail_window");
  check_at_least(o.clean_window, 1, "clean_window");
  check_factor(o.window_growth, "window_growth");
  check_at_least(o.max_clean_window, o.clean_window, "max_clean_window");
  check_factor(o.return_margin, "return_margin");
  check_at_least(o.amax_history_len, 1, "amax_history_len");
  if (o.rollout.has_value()) {
    check_at_least(o.rollout->interval, 1, "rollout.interval");
    check_at_least(o.rollout->group, 1, "rollout.group");
    check_bound(o.rollout->loss_bound, "loss_bound");
    check_bound(o.rollout->gradient_bound, "gradient_bound");
  }
}

// Options are checked before the network is looked at.
template <class Module>
BoundModulePolicy bound(
    const Module& module, const PrecisionControllerOptions& options) {
  check_options(options);
  return options.policy.bind(module);
}

template <class Tensors>
std::vector<at::Tensor> listed(const Tensors& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor);
  }
  return result;
}

} // namespace

io::StateDict to_row(const PrecisionMove& move) {
  io::StateDict row;
  row.set("step", move.step);
  row.set("module", move.module);
  row.set("from", c10::toString(move.from));
  row.set("to", c10::toString(move.to));
  row.set("reason", move.reason);
  return row;
}

PrecisionController::PrecisionController(
    const torch::nn::Module& module, const PrecisionControllerOptions& options)
    : impl_(std::make_unique<Impl>(
          options,
          bound(module, options),
          module.parameters(),
          module.buffers())) {}

PrecisionController::PrecisionController(
    const torch::jit::Module& module, const PrecisionControllerOptions& options)
    : impl_(std::make_unique<Impl>(
          options,
          bound(module, options),
          listed(module.parameters()),
          listed(module.buffers()))) {}

PrecisionController::~PrecisionController() = default;

BoundModulePolicy PrecisionController::modules() const {
  return impl_->modules();
}

void PrecisionController::update(const StepResult& result) {
  impl_->update(&result);
}

void PrecisionController::update() {
  impl_->update(nullptr);
}

bool PrecisionController::check_rollout(
    const std::function<at::Tensor()>& loss) {
  return impl_->check_rollout(loss);
}

int64_t PrecisionController::rollout_remaining() const {
  return impl_->rollout_remaining();
}

const std::vector<PrecisionMove>& PrecisionController::moves() const {
  return impl_->moves();
}

std::vector<LayerStatistics> PrecisionController::statistics() const {
  return impl_->statistics();
}

bool PrecisionController::observing() const {
  return impl_->observing();
}

io::StateDict PrecisionController::state_dict() const {
  return impl_->state_dict();
}

void PrecisionController::load_state_dict(const io::StateDict& state) {
  impl_->load_state_dict(state);
}

} // namespace ampkit
