#pragma once

#include <functional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ampkit/amp/cpu_kernels.h>
#include <ampkit/zoo/report/machine.h>

namespace ampkit::zoo {

/// Whether the processor has the capability of that name, as in
/// at::cpu::get_cpu_capabilities().
using HasCapability = std::function<bool(const std::string&)>;

/// Instruction sets that matter to LibTorch, as people write them, e.g. "AVX2",
/// "AVX-512 BF16".
std::vector<std::string> instruction_sets(const HasCapability& has);

/// fp32, bf16, fp16 and fp8 on the processor, unmeasured. `choice` is
/// ampkit::cpu_16bit() in a real run.
std::vector<DtypeSupport> cpu_dtypes(
    const HasCapability& has,
    const std::function<Cpu16BitChoice(c10::ScalarType)>& choice);

/// The same on a CUDA device of that compute capability, unmeasured.
std::vector<DtypeSupport> cuda_dtypes(int64_t major, int64_t minor);

/// Fills in the speeds of `dtypes`; a dtype that cannot be computed becomes
/// `missing`. See collect_machine() for what it disturbs.
void measure(std::vector<DtypeSupport>& dtypes, c10::Device device);

/// Turns `native` into `emulated` where both speeds are far below those of
/// `fp32`: units that something keeps LibTorch from using are no use.
void correct_path(DtypeSupport& support, const DtypeSupport& fp32);

} // namespace ampkit::zoo
