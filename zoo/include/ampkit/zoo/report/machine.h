#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ampkit/export.h>

namespace ampkit::zoo {

/// How a dtype's matrix products and convolutions are computed.
enum class DtypePath {
  native, ///< by units made for the dtype
  through_fp32, ///< ampkit converts, LibTorch computes in FP32, ampkit rounds
  emulated, ///< LibTorch's own kernel, on a processor without such units
  missing, ///< not at all
};

/// What one dtype really is on one device.
struct DtypeSupport {
  std::string name; ///< "fp32", "bf16", "fp16" or "fp8"
  DtypePath path = DtypePath::missing;
  std::string reason; ///< why it is that path, for people
  /// Speed of a small matrix product and of a small convolution as ampkit runs
  /// them; none: not measured, or the op does not exist for the dtype.
  std::optional<double> matmul_gflops;
  std::optional<double> conv_gflops;
  /// The same with LibTorch's own kernels, where ampkit replaces them.
  std::optional<double> stock_matmul_gflops;
  std::optional<double> stock_conv_gflops;
};

/// A CUDA device and its dtypes, in the order fp32, bf16, fp16, fp8.
struct CudaDevice {
  std::string name;
  std::string compute_capability; ///< e.g. "9.0"
  int64_t memory_bytes = 0;
  std::vector<DtypeSupport> dtypes;
};

/// Something that is not there and could be.
struct MissingPart {
  std::string name;
  std::string effect; ///< what does not work without it
  std::string remedy; ///< a command, where there is one
};

/// What a training run meets on this machine. A plain value.
struct AMPKIT_API Machine {
  std::string ampkit_version;
  std::string libtorch_version;
  /// oneDNN, MKL, OpenMP, CUDA and cuDNN as LibTorch was built, with versions
  /// where it tells them.
  std::vector<std::string> libraries;
  std::string system; ///< kernel name, release and architecture

  std::string processor;
  int64_t physical_cores = 0; ///< 0: unknown
  int64_t logical_cores = 0;
  /// Cores that this process may use, by affinity and container quota; a quota
  /// can be a fraction.
  double usable_cores = 0;
  std::vector<std::string> instruction_sets; ///< those that matter to LibTorch
  std::string libtorch_kernels; ///< which set LibTorch's own kernels use
  int64_t memory_bytes = 0; ///< of the machine
  int64_t memory_limit_bytes = 0; ///< of the container; 0: none
  int64_t memory_available_bytes = 0; ///< at the time of asking

  /// Processes that wanted a core, on average over the last minute.
  double load_average = 0;

  int64_t threads = 0; ///< inside one op
  int64_t interop_threads = 0; ///< ops side by side
  std::vector<DtypeSupport> dtypes; ///< of the processor: fp32 bf16 fp16 fp8
  std::vector<CudaDevice> cuda_devices;
  std::vector<MissingPart> missing;

  /// Whether other programs take so much that speeds measured now are too low.
  bool is_busy() const { return load_average > usable_cores / 2; }

  /// Two to five lines for the start of a training run, with a line break after
  /// each.
  std::string to_text_short() const;
  /// Everything, as `ampkit doctor` prints it.
  std::string to_text() const;
  /// Everything, as the machine.json of a run: one JSON object, indented.
  std::string to_json() const;
};

/// Whether collect_machine() measures.
struct CollectMachineOptions {
  /// Times a matrix product and a convolution for each dtype and device: about
  /// a second in all. Otherwise nothing is computed and the figures are empty.
  bool measure = false;
};

/// Asks the operating system and LibTorch. Puts ampkit's 16-bit kernels in
/// place where they are wanted (install_cpu_16bit()), because the answer is
/// about a training run, which does that too.
///
/// With `measure`, other threads must not compute meanwhile: it switches those
/// kernels off for the process while it times LibTorch's own, and back. Uses
/// the calling thread's number of threads. Waits for the devices. What cannot
/// be found out stays empty or 0; it does not throw for that.
AMPKIT_API Machine collect_machine(const CollectMachineOptions& options = {});

/// "native", "through FP32", "emulated (stock, slow)" or "missing".
AMPKIT_API std::string to_string(DtypePath path);

} // namespace ampkit::zoo
