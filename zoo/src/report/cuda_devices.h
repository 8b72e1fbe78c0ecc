#pragma once

#include <string>
#include <vector>

#include <ampkit/zoo/report/machine.h>

namespace ampkit::zoo {

/// The CUDA devices that LibTorch sees, unmeasured. Empty without CUDA; built
/// from another file where LibTorch has it.
std::vector<CudaDevice> cuda_devices();

/// "CUDA 13.0" and "cuDNN" where LibTorch has them.
std::vector<std::string> cuda_libraries();

} // namespace ampkit::zoo
