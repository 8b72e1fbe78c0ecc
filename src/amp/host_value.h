#pragma once

#include <ATen/core/Tensor.h>

namespace ampkit {

/// Whether reading `tensor` makes nobody wait.
bool readable_now(const at::Tensor& tensor);

/// The one value of a tensor that is readable now, without an operator: on
/// small networks their number is what a step costs.
double host_value(const at::Tensor& tensor);

/// While it lives, no tensor is readable now in this thread: code for devices
/// can be run, and its waits counted, on the CPU.
class TreatCpuAsDevice {
 public:
  TreatCpuAsDevice();
  ~TreatCpuAsDevice();
  TreatCpuAsDevice(const TreatCpuAsDevice&) = delete;
  TreatCpuAsDevice& operator=(const TreatCpuAsDevice&) = delete;

 private:
  bool before_;
};

} // namespace ampkit
