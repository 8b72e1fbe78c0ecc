#include "kernels/cpu_features.h"

namespace ampkit::kernels {

const CpuFeatures& cpu_features() {
  static const CpuFeatures features{};
  return features;
}

} // namespace ampkit::kernels
