#include <ampkit/amp/grad_scaler.h>

#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "amp/grad_scaler_impl.h"
#include "amp/trial_pass.h"

namespace ampkit {
namespace {

GradScalerOptions with_precision(
    GradScalerOptions options, const Precision& precision) {
  options.enabled = options.enabled && precision.scales_loss;
  return options;
}

GradScalerOptions resolved(GradScalerOptions options) {
  options.check();
  if (options.torch_exact) {
    options.min_scale = 0;
    options.max_scale = std::numeric_limits<float>::max();
    options.max_consecutive_skips = 0;
    options.max_consecutive_faults = 0;
  }
  if (options.enabled) {
    options.check_without_scaling = false;
  }
  return options;
}

} // namespace

GradScaler::Impl::Impl(const GradScalerOptions& given)
    : options(resolved(given)), scale(options) {}

std::string GradScaler::Impl::name_of(const Gradient& gradient) const {
  const auto found = names.find(gradient.parameter.unsafeGetTensorImpl());
  return found != names.end()
             ? found->second
             : c10::str(
                   "parameter ", gradient.index, " of group ", gradient.group);
}

GradientName GradScaler::Impl::namer() const {
  return [this](const Gradient& gradient) { return name_of(gradient); };
}

void GradScaler::Impl::note(const at::Tensor& loss) {
  TORCH_CHECK(
      loss.is_floating_point(),
      "GradScaler::scale: the loss must be floating point, got ",
      loss.scalar_type());
  if (!options.torch_exact && !TrialPass::active()) {
    bad_loss = bad_loss | Flag::not_finite(loss.detach());
  }
}

GradScaler::GradScaler(const GradScalerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

GradScaler::GradScaler(
    const Precision& precision, const GradScalerOptions& options)
    : GradScaler(with_precision(options, precision)) {}

GradScaler::~GradScaler() = default;
GradScaler::GradScaler(GradScaler&& other) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&& other) noexcept = default;

void GradScaler::name_parameters(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    impl_->names[item.value().unsafeGetTensorImpl()] = item.key();
  }
  impl_->scaled_gradients->know(module.parameters());
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  if (!impl_->checks()) {
    return loss;
  }
  impl_->note(loss);
  at::Tensor scaled = loss;
  if (impl_->options.enabled) {
    if (!impl_->scale.placed()) {
      impl_->scale.place(loss.device());
    }
    // 16-bit losses overflow at a scale of 65536.
    const bool narrow = loss.element_size() < 4;
    scaled = (narrow ? loss.to(at::kFloat) : loss) *
             impl_->scale.tensor().to(loss.device());
    if (scaled.requires_grad() && !TrialPass::active()) {
      impl_->scaled_gradients->begin();
    }
  }
  if (!impl_->options.torch_exact && !TrialPass::active()) {
    look_before_backward(scaled, impl_->leftovers);
  }
  return scaled;
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

double GradScaler::get_scale() const {
  return impl_->options.enabled
             ? static_cast<double>(impl_->scale.state().scale)
             : 1.0;
}

double GradScaler::get_growth_factor() const {
  return impl_->options.growth_factor;
}

double GradScaler::get_backoff_factor() const {
  return impl_->options.backoff_factor;
}

int64_t GradScaler::get_growth_interval() const {
  return impl_->options.growth_interval;
}

bool GradScaler::is_enabled() const {
  return impl_->options.enabled;
}

int64_t GradScaler::steps_taken() const {
  const auto counts = impl_->counter.read();
  return counts.steps - counts.skipped;
}

int64_t GradScaler::steps_skipped() const {
  return impl_->counter.read().skipped;
}

int64_t GradScaler::faults() const {
  return impl_->counter.read().faults;
}

} // namespace ampkit
