#include <ampkit/amp/autocast.h>

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include "amp/autocast_kernels.h"
#include "kernels/cpu_16bit.h"

namespace ampkit {
namespace {

constexpr std::array<c10::DeviceType, 2> kDevices{
    c10::DeviceType::CPU, c10::DeviceType::CUDA};

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

} // namespace

AutocastState AutocastState::current() {
  ThreadAutocast& thread = thread_autocast();
  AutocastState state;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    state.devices_[i] = {
        .enabled = at::autocast::is_autocast_enabled(kDevices[i]),
        .by_ampkit = thread.of(kDevices[i]),
        .dtype = at::autocast::get_autocast_dtype(kDevices[i])};
  }
  state.cache_enabled_ = thread.cache_enabled;
  return state;
}

void AutocastState::restore() const {
  ThreadAutocast& thread = thread_autocast();
  for (size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], devices_[i].enabled);
    at::autocast::set_autocast_dtype(kDevices[i], devices_[i].dtype);
    thread.of(kDevices[i]) = devices_[i].by_ampkit;
  }
  thread.cache_enabled = cache_enabled_;
}

Autocast::Autocast(
    c10::Device device, c10::ScalarType dtype, const AutocastOptions& options)
    : before_(AutocastState::current()) {
  check_supported(device, dtype);
  enter();
  const bool enabled = options.enabled && dtype != at::kFloat;
  at::autocast::set_autocast_enabled(device.type(), enabled);
  if (enabled) {
    at::autocast::set_autocast_dtype(device.type(), dtype);
  }
  thread_autocast().of(device.type()) = true;
  thread_autocast().cache_enabled = options.cache_enabled;
}

Autocast::Autocast(
    c10::Device device,
    const Precision& precision,
    const AutocastOptions& options)
    : Autocast(device, precision.compute, options) {}

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
