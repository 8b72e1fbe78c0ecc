#include <ampkit/amp/autocast.h>

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include "amp/autocast_kernels.h"
#include "amp/fp8_state.h"
#include "amp/policy_kernels.h"
#include "amp/thread_autocast.h"
#include "kernels/cpu_16bit.h"

namespace ampkit {
namespace {

void check_supported(c10::Device device, c10::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      device.is_cpu() || device.is_cuda(),
      "Autocast: device must be cpu or cuda, got ",
      device);
  TORCH_CHECK_VALUE(
      dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat,
      "Autocast: dtype must be Half, BFloat16, or Float for no autocasting, "
      "got ",
      dtype);
}

// What the policies of `options` need besides the usual kernels.
void install_kernels(const AutocastOptions& options) {
  if (options.modules.has_value()) {
    install_parameter_kernels();
  } else if (options.ops.has_value()) {
    install_policy_kernels();
  }
}

// The policies of the region around, with what is given in their place.
std::shared_ptr<const RegionPolicy> combined(
    const std::shared_ptr<const RegionPolicy>& around, RegionPolicy given) {
  if (given.ops == nullptr && given.modules == nullptr &&
      given.linears == nullptr) {
    return around;
  }
  if (around != nullptr) {
    given.ops = given.ops != nullptr ? given.ops : around->ops;
    given.modules = given.modules != nullptr ? given.modules : around->modules;
    given.linears = given.linears != nullptr ? given.linears : around->linears;
  }
  return std::make_shared<const RegionPolicy>(std::move(given));
}

// What everything that isn't FP8 runs in.
c10::ScalarType region_dtype(
    const Precision& precision, const AutocastOptions& options) {
  if (precision.compute != at::kFloat8_e4m3fn) {
    return precision.compute;
  }
  const auto& around = thread_autocast().policy;
  TORCH_CHECK_VALUE(
      !options.enabled || options.fp8 != nullptr ||
          (around != nullptr && around->linears != nullptr),
      "Autocast: precision ",
      precision,
      " needs the state of its layers; give it as {.fp8 = "
      "std::make_shared<ampkit::Fp8Linears>(*model)}");
  return at::kBFloat16;
}

} // namespace

AutocastState AutocastState::current() {
  ThreadAutocast& thread = thread_autocast();
  AutocastState state;
  for (size_t slot = 0; slot < kAutocastDevices; ++slot) {
    const auto device = slot_device(slot);
    state.devices_[slot] = {
        .enabled = at::autocast::is_autocast_enabled(device),
        .by_ampkit = thread.of(device),
        .dtype = at::autocast::get_autocast_dtype(device)};
  }
  state.cache_enabled_ = thread.cache_enabled;
  state.policy_ = thread.policy;
  return state;
}

void AutocastState::restore() const {
  ThreadAutocast& thread = thread_autocast();
  for (size_t slot = 0; slot < kAutocastDevices; ++slot) {
    const auto device = slot_device(slot);
    at::autocast::set_autocast_enabled(device, devices_[slot].enabled);
    at::autocast::set_autocast_dtype(device, devices_[slot].dtype);
    thread.of(device) = devices_[slot].by_ampkit;
  }
  thread.cache_enabled = cache_enabled_;
  thread.policy = policy_;
  thread.current_module = -1;
}

Autocast::Autocast(
    c10::Device device, c10::ScalarType dtype, const AutocastOptions& options)
    : before_(AutocastState::current()) {
  check_supported(device, dtype);
  install_kernels(options);
  enter();
  const bool enabled = options.enabled && dtype != at::kFloat;
  at::autocast::set_autocast_enabled(device.type(), enabled);
  if (enabled) {
    at::autocast::set_autocast_dtype(device.type(), dtype);
  }
  thread_autocast().of(device.type()) = true;
  thread_autocast().cache_enabled = options.cache_enabled;
  thread_autocast().policy = combined(
      before_.policy_,
      {.ops = options.ops.has_value() ? options.ops->compiled_ : nullptr,
       .modules =
           options.modules.has_value() ? options.modules->binding() : nullptr,
       .linears =
           options.fp8 != nullptr ? linear_override(*options.fp8) : nullptr});
}

Autocast::Autocast(
    c10::Device device,
    const Precision& precision,
    const AutocastOptions& options)
    : Autocast(device, region_dtype(precision, options), options) {}

Autocast::Autocast(const AutocastState& state)
    : before_(AutocastState::current()) {
  enter();
  state.restore();
}

void Autocast::enter() {
  install_autocast_kernels();
  kernels::install_cpu_16bit();
  at::autocast::increment_nesting();
  ++thread_autocast().depth;
}

Autocast::~Autocast() {
  before_.restore();
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
  if (--thread_autocast().depth == 0) {
    thread_autocast().cache.clear();
  }
}

int64_t Autocast::cached_casts() {
  return thread_autocast().cache.size();
}

} // namespace ampkit
