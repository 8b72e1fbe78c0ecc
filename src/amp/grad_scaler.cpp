#include <ampkit/amp/grad_scaler.h>

#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <ampkit/amp/fused_step.h>

#include "amp/gradients.h"

namespace ampkit {
namespace {

bool finite_positive(double value) {
  return std::isfinite(value) && value > 0;
}

void check_options(const GradScalerOptions& o) {
  TORCH_CHECK_VALUE(
      finite_positive(o.init_scale),
      "GradScaler: init_scale must be finite and > 0, got ",
      o.init_scale);
  TORCH_CHECK_VALUE(
      std::isfinite(o.growth_factor) && o.growth_factor > 1,
      "GradScaler: growth_factor must be finite and > 1, got ",
      o.growth_factor);
  TORCH_CHECK_VALUE(
      o.backoff_factor > 0 && o.backoff_factor < 1,
      "GradScaler: backoff_factor must be in (0, 1), got ",
      o.backoff_factor);
  TORCH_CHECK_VALUE(
      o.growth_interval >= 1,
      "GradScaler: growth_interval must be >= 1, got ",
      o.growth_interval);
  TORCH_CHECK_VALUE(
      finite_positive(o.min_scale),
      "GradScaler: min_scale must be finite and > 0, got ",
      o.min_scale);
  TORCH_CHECK_VALUE(
      std::isfinite(o.max_scale) && o.max_scale >= o.min_scale,
      "GradScaler: max_scale must be finite and >= min_scale ",
      o.min_scale,
      ", got ",
      o.max_scale);
  TORCH_CHECK_VALUE(
      o.init_scale >= o.min_scale && o.init_scale <= o.max_scale,
      "GradScaler: init_scale must be in [min_scale, max_scale] = [",
      o.min_scale,
      ", ",
      o.max_scale,
      "], got ",
      o.init_scale);
}

GradScalerOptions with_precision(
    GradScalerOptions options, const Precision& precision) {
  options.enabled = options.enabled && precision.scales_loss;
  return options;
}

at::Tensor to_flag(const at::Tensor& condition) {
  return condition.to(at::kFloat);
}

// fp32 []: 1 if the norm is not finite or a count is not 0, else 0. In few ops,
// since on small networks their number is what a step costs: x * 0 is 0 for
// every finite x and NaN, which is not 0, for any other.
at::Tensor any_bad(
    const at::Tensor& norm,
    const at::Tensor& non_finite,
    const at::Tensor& found_inf) {
  auto sum = at::add(non_finite, norm * 0);
  if (found_inf.defined()) {
    sum += found_inf.to(sum.device());
  }
  return to_flag(sum.ne(0));
}

} // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  check_options(options);
}

GradScaler::GradScaler(
    const Precision& precision, const GradScalerOptions& options)
    : GradScaler(with_precision(options, precision)) {}

void GradScaler::name_parameters(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    names_[item.value().unsafeGetTensorImpl()] = item.key();
  }
}

std::string GradScaler::name_of(
    const at::Tensor& parameter, size_t group, size_t index) const {
  const auto found = names_.find(parameter.unsafeGetTensorImpl());
  return found != names_.end()
             ? "'" + found->second + "'"
             : c10::str("parameter ", index, " of group ", group);
}

void GradScaler::create_tensors(c10::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  scale_ = at::full({}, options_.init_scale, options);
  growth_tracker_ = at::full({}, init_growth_tracker_, options.dtype(at::kInt));
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  if (!options_.enabled) {
    return loss;
  }
  TORCH_CHECK(
      loss.is_floating_point(),
      "GradScaler::scale: the loss must be floating point, got ",
      loss.scalar_type());
  if (!scale_.defined()) {
    create_tensors(loss.device());
  }
  // 16-bit losses overflow at a scale of 65536.
  const bool narrow = loss.element_size() < 4;
  return (narrow ? loss.to(at::kFloat) : loss) * scale_.to(loss.device());
}

std::vector<at::Tensor> GradScaler::scale(
    const std::vector<at::Tensor>& losses) {
  std::vector<at::Tensor> scaled;
  scaled.reserve(losses.size());
  for (const at::Tensor& loss : losses) {
    scaled.push_back(scale(loss));
  }
  return scaled;
}

GradScaler::Record& GradScaler::require_record(
    torch::optim::Optimizer& optimizer, const char* who) {
  TORCH_CHECK(
      !options_.enabled || scale_.defined(),
      "GradScaler::",
      who,
      ": call scale(loss).backward() first");
  Record& record = records_[&optimizer];
  TORCH_CHECK(
      !record.stepped,
      "GradScaler::",
      who,
      ": step() has already been called for this optimizer since the last "
      "update(); call update() once per iteration");
  return record;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    return;
  }
  Record& record = require_record(optimizer, "unscale_");
  TORCH_CHECK(
      !record.unscaled,
      "GradScaler::unscale_: already called for this optimizer since the last "
      "update(); if the iteration was given up, call abandon()");
  record.found_inf = unscale_gradients(optimizer);
  record.unscaled = true;
}

at::Tensor GradScaler::unscale_gradients(torch::optim::Optimizer& optimizer) {
  const auto gradients = defined_gradients(optimizer);
  for (const Gradient& gradient : gradients) {
    TORCH_CHECK(
        gradient.values.scalar_type() != at::kHalf,
        "GradScaler: the gradient of ",
        name_of(gradient.parameter, gradient.group, gradient.index),
        " (Half ",
        gradient.parameter.sizes(),
        ") can't be unscaled in place, since small values would be lost; keep "
        "FP32 parameters, or use an optimizer of ampkit::optim, which keeps "
        "FP32 masters, and let step() unscale");
  }
  auto found_inf = at::zeros_like(scale_);
  // In FP64, as PyTorch does: some builds only approximate FP32 division.
  const auto inv_scale = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  unscale_and_check_(gradients, inv_scale, found_inf);
  return found_inf;
}

StepResult GradScaler::step(
    torch::optim::Optimizer& optimizer, const StepOptions& options) {
  TORCH_CHECK_VALUE(
      !options.max_norm.has_value() || *options.max_norm > 0,
      "GradScaler::step: max_norm must be > 0, got ",
      options.max_norm.value_or(0));
  TORCH_CHECK(
      !options_.enabled ||
          dynamic_cast<torch::optim::LBFGS*>(&optimizer) == nullptr,
      "GradScaler::step: LBFGS computes gradients inside step(), where nobody "
      "unscales them; use it without a scaler");
  Record& record = require_record(optimizer, "step");
  if (!any_gradient(optimizer)) {
    TORCH_CHECK(
        options.allow_no_grad,
        "GradScaler::step: 0 of ",
        parameter_count(optimizer),
        " parameters have gradients; was the loss detached, or the model moved "
        "or replaced after the optimizer was made? (StepOptions.allow_no_grad "
        "skips such steps)");
    records_.erase(&optimizer);
    return StepResult::of(false);
  }
  StepResult result = dynamic_cast<FusedStep*>(&optimizer) != nullptr
                          ? fused_step(optimizer, options, record)
                          : unfused_step(optimizer, options, record);
  record.found_inf = result.found_inf();
  record.stepped = true;
  count(result.found_inf());
  if (!options_.enabled) {
    records_.erase(&optimizer); // update() need not be called
  }
  return result;
}

StepResult GradScaler::fused_step(
    torch::optim::Optimizer& optimizer,
    const StepOptions& options,
    Record& record) {
  auto& fused = dynamic_cast<FusedStep&>(optimizer);
  at::Tensor found_inf = record.found_inf;
  at::Tensor divisor =
      options_.enabled && !record.unscaled ? scale_ : at::Tensor();
  at::Tensor norm;
  if (divisor.defined() || options.max_norm.has_value()) {
    const GradientSummary summary = fused.inspect_gradients();
    norm = summary.sum_of_squares.sqrt();
    norm = (divisor.defined() ? norm / divisor : norm).to(at::kFloat);
    found_inf = any_bad(norm, summary.non_finite, found_inf);
    if (options.max_norm.has_value()) {
      const auto factor = clip_factor(norm, *options.max_norm);
      divisor = divisor.defined() ? divisor / factor : factor.reciprocal();
    }
  }
  fused.fused_step({.grad_divisor = divisor, .found_inf = found_inf});
  return {found_inf.defined() ? found_inf : at::zeros({}), norm};
}

StepResult GradScaler::unfused_step(
    torch::optim::Optimizer& optimizer,
    const StepOptions& options,
    Record& record) {
  at::Tensor found_inf = record.found_inf;
  if (options_.enabled && !record.unscaled) {
    found_inf = unscale_gradients(optimizer);
    record.unscaled = true;
    record.found_inf = found_inf;
  }
  at::Tensor norm;
  if (options.max_norm.has_value()) {
    const auto gradients = defined_gradients(optimizer);
    norm = total_norm(gradients, gradients.front().values.device());
    const auto bad = to_flag(~norm.isfinite());
    found_inf =
        found_inf.defined() ? found_inf + bad.to(found_inf.device()) : bad;
    // A non-finite norm would turn every gradient into NaN: leave them then.
    const auto factor = at::where(
        norm.isfinite(), clip_factor(norm, *options.max_norm), at::ones({}));
    multiply_(gradients, factor);
  }
  // The one wait: an optimizer that is not ampkit's can't be told to skip on
  // the device.
  const bool skip = found_inf.defined() && found_inf.item<float>() != 0;
  if (!skip) {
    optimizer.step();
  }
  return {found_inf.defined() ? found_inf : at::zeros({}), norm};
}

void GradScaler::count(const at::Tensor& found_inf) {
  ++steps_;
  const auto skipped = (found_inf != 0).to(at::kDouble);
  skipped_ =
      skipped_.defined() ? skipped_ + skipped.to(skipped_.device()) : skipped;
}

void GradScaler::update() {
  if (!options_.enabled) {
    return;
  }
  TORCH_CHECK(scale_.defined(), "GradScaler::update: call scale(loss) first");
  auto found_inf = at::zeros_like(scale_);
  bool recorded = false;
  for (const auto& [optimizer, record] : records_) {
    if (record.found_inf.defined()) {
      found_inf += record.found_inf.to(found_inf.device());
      recorded = true;
    }
  }
  TORCH_CHECK(
      recorded,
      "GradScaler::update: no optimizer was unscaled or stepped since the last "
      "update()");
  at::_amp_update_scale_(
      scale_,
      growth_tracker_,
      found_inf,
      options_.growth_factor,
      options_.backoff_factor,
      options_.growth_interval);
  scale_.clamp_(options_.min_scale, options_.max_scale);
  records_.clear();
}

void GradScaler::update(double new_scale) {
  TORCH_CHECK_VALUE(
      new_scale >= options_.min_scale && new_scale <= options_.max_scale,
      "GradScaler::update: new_scale must be in [min_scale, max_scale] = [",
      options_.min_scale,
      ", ",
      options_.max_scale,
      "], got ",
      new_scale);
  if (!options_.enabled) {
    return;
  }
  TORCH_CHECK(scale_.defined(), "GradScaler::update: call scale(loss) first");
  scale_.fill_(new_scale);
  records_.clear();
}

void GradScaler::abandon() {
  records_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) {
    return 1.0;
  }
  return scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

int64_t GradScaler::steps_skipped() const {
  return skipped_.defined() ? skipped_.item<int64_t>() : 0;
}

int64_t GradScaler::steps_taken() const {
  return steps_ - steps_skipped();
}

io::StateDict GradScaler::state_dict() const {
  io::StateDict state;
  if (options_.enabled) {
    state.set("scale", get_scale());
    state.set("growth_factor", options_.growth_factor);
    state.set("backoff_factor", options_.backoff_factor);
    state.set("growth_interval", options_.growth_interval);
    state.set(
        "_growth_tracker",
        growth_tracker_.defined() ? growth_tracker_.item<int64_t>()
                                  : init_growth_tracker_);
  }
  return state;
}

void GradScaler::load_state_dict(const io::StateDict& state) {
  if (!options_.enabled) {
    return;
  }
  TORCH_CHECK(
      !state.empty(),
      "GradScaler::load_state_dict: the state is empty, as that of a disabled "
      "scaler is");
  GradScalerOptions loaded = options_;
  const double scale = state.real("scale");
  TORCH_CHECK_VALUE(
      finite_positive(scale),
      "GradScaler::load_state_dict: scale must be finite and > 0, got ",
      scale);
  loaded.init_scale = std::clamp(scale, loaded.min_scale, loaded.max_scale);
  loaded.growth_factor = state.real("growth_factor");
  loaded.backoff_factor = state.real("backoff_factor");
  loaded.growth_interval = state.integer("growth_interval");
  check_options(loaded);
  const int64_t tracker = state.integer("_growth_tracker");
  TORCH_CHECK_VALUE(
      tracker >= 0,
      "GradScaler::load_state_dict: _growth_tracker must be >= 0, got ",
      tracker);
  options_ = loaded;
  init_growth_tracker_ = tracker;
  records_.clear();
  if (scale_.defined()) {
    scale_.fill_(loaded.init_scale);
    growth_tracker_.fill_(tracker);
  }
}

} // namespace ampkit
