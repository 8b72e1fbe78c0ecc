#include "amp/precision_controller_impl.h"

#include <algorithm>
#include <limits>

#include <ATen/Functions.h>

namespace ampkit {

PrecisionController::Impl::Impl(
    const PrecisionControllerOptions& options,
    const BoundModulePolicy& modules,
    std::vector<at::Tensor> parameters,
    std::vector<at::Tensor> buffers)
    : options_(options),
      rollout_(options.rollout.value_or(PrecisionRolloutOptions{})),
      modules_(modules),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      recorder_(std::make_shared<LayerRecorder>(options.dtype)) {
  const ModuleBinding& binding = *modules_.binding();
  TORCH_CHECK_VALUE(
      binding.size() > 0,
      "PrecisionController: the network has no parameters, so no layers; were "
      "its modules registered?");
  for (int i = 0; i < binding.size(); ++i) {
    ControlledLayer layer;
    layer.stage =
        binding.pattern(i).empty() ? LayerStage::low : LayerStage::fixed;
    if (binding.dtype(i) != at::ScalarType::Undefined) {
      layer.stage = LayerStage::fixed; // the rule "" has an empty pattern
    }
    layer.window = options_.clean_window;
    layer.statistics.module = path(i);
    layers_.push_back(std::move(layer));
  }
  if (options_.rollout.has_value()) {
    plan_rollout();
  }
  begin_step();
}

PrecisionController::Impl::~Impl() {
  modules_.binding()->observer = nullptr;
  recorder_->remove_hooks();
}

std::string PrecisionController::Impl::path(int layer) const {
  return modules_.binding()->path(layer);
}

std::vector<LayerStatistics> PrecisionController::Impl::statistics() const {
  std::vector<LayerStatistics> result;
  for (const ControlledLayer& layer : layers_) {
    result.push_back(layer.statistics);
  }
  return result;
}

// Decides whether the step that comes is observed.
void PrecisionController::Impl::begin_step() {
  observing_ = urgent_ || step_ % options_.sample_interval == 0;
  modules_.binding()->observer = observing_ ? recorder_.get() : nullptr;
  recorder_->remove_hooks();
  if (!observing_) {
    recorder_->set_mode(LayerRecorder::Mode::ignore, 1);
    return;
  }
  recorder_->set_mode(
      LayerRecorder::Mode::record,
      urgent_ ? std::numeric_limits<int64_t>::max() : options_.sample_elements);
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.requires_grad()) {
      recorder_->watch_parameter(
          modules_.binding()->find(parameter), parameter);
    }
  }
}

int64_t PrecisionController::Impl::streak() const {
  return streak_on_device_.defined() ? streak_on_device_.item<int64_t>()
                                     : streak_;
}

StepOutcome PrecisionController::Impl::outcome_of(const StepResult* result) {
  if (result == nullptr) {
    return {};
  }
  const at::Tensor& found_inf = result->found_inf();
  if (!observing_ && !found_inf.is_cpu()) {
    // Counted there, so that nothing waits until the next observed step.
    const auto skipped = found_inf.ne(0).to(at::kLong);
    streak_on_device_ = streak_on_device_.defined()
                            ? (streak_on_device_ + 1) * skipped
                            : (skipped * (streak_ + 1));
    return {};
  }
  const bool skipped = result->skipped(); // may wait for the device
  streak_ = skipped ? streak() + 1 : 0;
  streak_on_device_ = at::Tensor();
  return {.skipped = skipped, .streak = streak_};
}

void PrecisionController::Impl::update(const StepResult* result) {
  const StepOutcome outcome = outcome_of(result);
  urgent_ = outcome.skipped.value_or(false);
  if (observing_) {
    std::vector<std::string> paths;
    std::vector<PerKind> structural;
    for (const ControlledLayer& layer : layers_) {
      paths.push_back(layer.statistics.module);
      structural.push_back(layer.structural);
    }
    const auto findings =
        judge_step(recorder_->take(), options_, paths, structural, outcome);
    for (size_t i = 0; i < findings.size(); ++i) {
      remember(layers_[i], findings[i]);
      apply(static_cast<int>(i), findings[i]);
      urgent_ = urgent_ || findings[i].overflowed;
    }
  }
  ++step_;
  begin_step();
}

void PrecisionController::Impl::remember(
    ControlledLayer& layer, const LayerFinding& finding) const {
  const auto push = [&](std::vector<double>& history, double amax) {
    history.push_back(amax);
    if (static_cast<int64_t>(history.size()) > options_.amax_history_len) {
      history.erase(history.begin());
    }
  };
  const auto& [output, output_gradient, parameter_gradient] =
      finding.statistics;
  if (output.elements > 0) {
    layer.statistics.dtype = finding.dtype;
    layer.statistics.output = output;
    push(layer.statistics.output_amax, output.amax);
  }
  if (output_gradient.elements > 0) {
    layer.statistics.output_gradient = output_gradient;
    push(layer.statistics.gradient_amax, output_gradient.amax);
  }
  if (parameter_gradient.elements > 0) {
    layer.statistics.parameter_gradient = parameter_gradient;
  }
}

void PrecisionController::Impl::apply(int layer, const LayerFinding& finding) {
  auto& state = layers_[static_cast<size_t>(layer)];
  for (size_t kind = 0; kind < finding.exact_zeros.size(); ++kind) {
    state.structural[kind] =
        std::max(state.structural[kind], finding.exact_zeros[kind]);
  }
  if (!finding.judged) {
    return;
  }
  if (state.stage == LayerStage::low && finding.failed) {
    count_failure(layer, finding);
  } else if (
      state.stage == LayerStage::low || state.stage == LayerStage::watched) {
    count_clean(layer, finding);
  }
}

void PrecisionController::Impl::count_failure(
    int layer, const LayerFinding& finding) {
  auto& state = layers_[static_cast<size_t>(layer)];
  state.failing = finding.at_once ? options_.fail_window : state.failing + 1;
  state.clean = 0;
  state.failed_by_overflow = finding.overflowed;
  if (state.failing < options_.fail_window) {
    return;
  }
  if (++state.failures > 1) {
    state.window = static_cast<int64_t>(std::min(
        static_cast<double>(options_.max_clean_window),
        static_cast<double>(state.window) * options_.window_growth));
  }
  state.structural = {0, 0, 0};
  move(layer, LayerStage::watched, finding.reason);
}

void PrecisionController::Impl::count_clean(
    int layer, const LayerFinding& finding) {
  auto& state = layers_[static_cast<size_t>(layer)];
  const bool watched = state.stage == LayerStage::watched;
  state.clean = watched && !finding.fits ? 0 : state.clean + 1;
  if (!watched) {
    // An overflow now and then costs a step each time: it takes longer to be
    // forgotten.
    const bool forgotten =
        !state.failed_by_overflow || state.clean >= options_.clean_window;
    state.failing = forgotten ? 0 : state.failing;
  } else if (state.clean >= state.window) {
    const auto& statistics = state.statistics;
    move(
        layer,
        LayerStage::low,
        c10::str(
            "clean for ",
            state.clean,
            " observed steps: output reaches ",
            statistics.output.amax,
            ", its gradient ",
            statistics.output_gradient.amax,
            ", underflow would be ",
            statistics.output.underflow,
            " and ",
            statistics.output_gradient.underflow));
  }
}

at::ScalarType PrecisionController::Impl::dtype_in(LayerStage stage) const {
  return stage == LayerStage::low ? options_.dtype : at::kFloat;
}

void PrecisionController::Impl::move(
    int layer, LayerStage stage, const std::string& reason) {
  auto& state = layers_[static_cast<size_t>(layer)];
  const auto from = dtype_in(state.stage);
  state.stage = stage;
  state.failing = 0;
  state.failed_by_overflow = false;
  state.clean = 0;
  modules_.binding()->set_dtype(
      layer, stage == LayerStage::low ? at::ScalarType::Undefined : at::kFloat);
  log(
      {.step = step_,
       .module = path(layer),
       .from = from,
       .to = dtype_in(stage),
       .reason = reason});
}

void PrecisionController::Impl::log(PrecisionMove move) {
  moves_.push_back(std::move(move));
  if (options_.on_move) {
    options_.on_move(moves_.back());
  }
}

} // namespace ampkit
