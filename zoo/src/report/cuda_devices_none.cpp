#include "report/cuda_devices.h"

namespace ampkit::zoo {

std::vector<CudaDevice> cuda_devices() {
  return {};
}

std::vector<std::string> cuda_libraries() {
  return {};
}

} // namespace ampkit::zoo
