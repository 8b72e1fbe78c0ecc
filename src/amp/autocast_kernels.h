#pragma once

namespace ampkit {

/// Replaces LibTorch's low-precision autocast kernels for CPU and CUDA by ones
/// that use the thread's CastCache and policy inside an ampkit guard and do
/// exactly what the stock ones do elsewhere. Once a process; thread-safe.
void install_autocast_kernels();

} // namespace ampkit
