#pragma once

namespace torch::jit {
struct Module;
} // namespace torch::jit

namespace ampkit {

/// Writes what tracing made of convolutions, aten::_convolution, as the op that
/// eager mode calls, aten::conv2d and its like: only those are in LibTorch's
/// autocast lists for the CPU, so that traced ones would run in FP32. To be
/// called before `module` runs for the first time.
void restore_convolutions(const torch::jit::Module& module);

} // namespace ampkit
