#include "amp/host_value.h"

#include <ATen/Dispatch.h>
#include <c10/util/Exception.h>

namespace ampkit {
namespace {

bool& cpu_is_device() {
  thread_local bool value = false;
  return value;
}

} // namespace

bool readable_now(const at::Tensor& tensor) {
  return tensor.is_cpu() && !cpu_is_device();
}

double host_value(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(tensor.is_cpu() && tensor.numel() == 1);
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return static_cast<double>(*tensor.const_data_ptr<float>());
    case at::kDouble:
      return *tensor.const_data_ptr<double>();
    case at::kHalf:
      return static_cast<double>(
          static_cast<float>(*tensor.const_data_ptr<at::Half>()));
    case at::kBFloat16:
      return static_cast<double>(
          static_cast<float>(*tensor.const_data_ptr<at::BFloat16>()));
    case at::kBool:
      return *tensor.const_data_ptr<bool>() ? 1.0 : 0.0;
    default:
      return tensor.item<double>();
  }
}

TreatCpuAsDevice::TreatCpuAsDevice() : before_(cpu_is_device()) {
  cpu_is_device() = true;
}

TreatCpuAsDevice::~TreatCpuAsDevice() {
  cpu_is_device() = before_;
}

} // namespace ampkit
