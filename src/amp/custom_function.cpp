#include <ampkit/amp/custom_function.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace ampkit {
namespace {

using torch::autograd::AutogradContext;

constexpr const char* kKey = "ampkit.autocast";

struct SavedState : torch::CustomClassHolder {
  explicit SavedState(const AutocastState& s) : state(s) {}
  AutocastState state;
};

void check_options(c10::Device device, const CustomForwardOptions& options) {
  TORCH_CHECK_VALUE(
      device.is_cpu() || device.is_cuda(),
      "CustomForward: device must be cpu or cuda, got ",
      device);
  TORCH_CHECK_VALUE(
      !options.cast_inputs.has_value() ||
          c10::isFloatingType(*options.cast_inputs),
      "CustomForward: cast_inputs must be a floating-point dtype, got ",
      options.cast_inputs.value_or(c10::ScalarType::Undefined));
}

AutocastState saved_state(const AutogradContext& ctx) {
  const auto entry = ctx.saved_data.find(kKey);
  TORCH_CHECK(
      entry != ctx.saved_data.end(),
      "CustomBackward: forward left no autocast state; make a CustomForward in "
      "its first line");
  return c10::static_intrusive_pointer_cast<SavedState>(
             entry->second.toCapsule())
      ->state;
}

} // namespace

CustomForward::CustomForward(
    AutogradContext* ctx,
    c10::Device device,
    const CustomForwardOptions& options)
    : device_(device.type()) {
  check_options(device, options);
  if (options.cast_inputs.has_value() &&
      at::autocast::is_autocast_enabled(device_)) {
    cast_to_ = options.cast_inputs;
    autocast_off_.emplace(
        device, at::kFloat, AutocastOptions{.enabled = false});
  }
  ctx->saved_data[kKey] = c10::IValue::make_capsule(
      c10::make_intrusive<SavedState>(AutocastState::current()));
}

at::Tensor CustomForward::cast(const at::Tensor& input) const {
  const bool eligible =
      cast_to_.has_value() && input.defined() && input.is_floating_point() &&
      input.device().type() == device_ && input.scalar_type() != at::kDouble;
  return eligible ? input.to(*cast_to_) : input;
}

std::optional<at::Tensor> CustomForward::cast(
    const std::optional<at::Tensor>& input) const {
  return input.has_value() ? std::optional(cast(*input)) : input;
}

std::vector<at::Tensor> CustomForward::cast(
    const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> result;
  result.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    result.push_back(cast(input));
  }
  return result;
}

CustomBackward::CustomBackward(const AutogradContext* ctx)
    : autocast_(saved_state(*ctx)) {}

} // namespace ampkit
