#include "report/cuda_devices.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda.h>

#include "report/dtype_support.h"

namespace ampkit::zoo {

std::vector<CudaDevice> cuda_devices() {
  std::vector<CudaDevice> devices;
  const auto count = at::detail::getCUDAHooks().getNumGPUs();
  for (int index = 0; index < count; ++index) {
    const auto* properties =
        at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
    devices.push_back(
        {.name = properties->name,
         .compute_capability = std::to_string(properties->major) + "." +
                               std::to_string(properties->minor),
         .memory_bytes = static_cast<int64_t>(properties->totalGlobalMem),
         .dtypes = cuda_dtypes(properties->major, properties->minor)});
  }
  return devices;
}

std::vector<std::string> cuda_libraries() {
  constexpr int kMajor = 1000; // CUDA_VERSION is major * 1000 + minor * 10
  constexpr int kMinor = 10;
  std::vector<std::string> names{
      "CUDA " + std::to_string(CUDA_VERSION / kMajor) + "." +
      std::to_string(CUDA_VERSION % kMajor / kMinor)};
  if (at::detail::getCUDAHooks().compiledWithCuDNN()) {
    names.emplace_back("cuDNN");
  }
  return names;
}

} // namespace ampkit::zoo
