#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <torch/utils.h>

#include "report/dtype_support.h"

namespace ampkit::zoo {
namespace {

using c10::ScalarType;
using Clock = std::chrono::steady_clock;

/// Sizes at which one run takes a fraction of a millisecond with units for the
/// dtype, and some ten milliseconds without.
struct Problem {
  int64_t side; // of the square matrices
  int64_t batch;
  int64_t channels; // in and out
  int64_t image; // height and width
};

constexpr Problem kCpuProblem{256, 4, 32, 16};
constexpr Problem kCudaProblem{2048, 16, 128, 56};

void wait_for(c10::Device device) {
  if (device.is_cuda()) {
    at::accelerator::synchronizeDevice(device.index());
  }
}

/// Raises `best`, in GFLOP/s, to the fastest run: other programs only ever add
/// time. Leaves none if the dtype has no such op.
void raise(
    std::optional<double>& best,
    double flop,
    c10::Device device,
    const std::function<void()>& op) {
  constexpr auto kBudget = std::chrono::milliseconds(8);
  try {
    if (!best) {
      op(); // Kernels are chosen and compiled here.
      wait_for(device);
    }
    const auto begin = Clock::now();
    do {
      const auto start = Clock::now();
      op();
      wait_for(device);
      const std::chrono::duration<double, std::nano> spent =
          Clock::now() - start;
      best = std::max(best.value_or(0), flop / spent.count());
    } while (Clock::now() - begin < kBudget);
  } catch (const c10::Error&) {
    return; // not implemented for this dtype on this device
  }
}

/// A constant: random numbers would move the generator of the training run.
at::Tensor operand(
    at::IntArrayRef sizes, ScalarType dtype, c10::Device device) {
  constexpr double kValue = 0.5;
  return at::full(sizes, kValue, at::dtype(ScalarType::Float).device(device))
      .to(dtype);
}

void time_matmul(
    std::optional<double>& best, ScalarType dtype, c10::Device device) {
  const auto n = (device.is_cuda() ? kCudaProblem : kCpuProblem).side;
  const auto left = operand({n, n}, dtype, device);
  const auto right = operand({n, n}, dtype, device).t();
  const auto one = at::ones({}, at::dtype(ScalarType::Float).device(device));
  const auto flop = 2.0 * static_cast<double>(n * n * n);
  raise(best, flop, device, [&] {
    if (dtype == ScalarType::Float8_e4m3fn) {
      at::_scaled_mm(
          left, right, one, one, {}, {}, ScalarType::BFloat16, false);
    } else {
      at::mm(left, right);
    }
  });
}

void time_conv(
    std::optional<double>& best, ScalarType dtype, c10::Device device) {
  const auto& size = device.is_cuda() ? kCudaProblem : kCpuProblem;
  constexpr int64_t kKernel = 3;
  const auto c = size.channels;
  const auto input =
      operand({size.batch, c, size.image, size.image}, dtype, device);
  const auto weight = operand({c, c, kKernel, kKernel}, dtype, device);
  const auto flop =
      2.0 * static_cast<double>(input.numel() * weight.numel() / c);
  raise(best, flop, device, [&] {
    at::conv2d(input, weight, {}, /*stride=*/1, /*padding=*/1);
  });
}

/// LibTorch's own kernels while it lives.
class StockKernels {
 public:
  StockKernels() { set_cpu_16bit(Cpu16Bit::native); }
  ~StockKernels() { set_cpu_16bit(before_); }
  StockKernels(const StockKernels&) = delete;
  StockKernels& operator=(const StockKernels&) = delete;

 private:
  Cpu16Bit before_ = cpu_16bit_mode();
};

ScalarType scalar_type(const std::string& name) {
  static const std::map<std::string, ScalarType> kTypes{
      {"fp32", ScalarType::Float},
      {"bf16", ScalarType::BFloat16},
      {"fp16", ScalarType::Half},
      {"fp8", ScalarType::Float8_e4m3fn}};
  return kTypes.at(name);
}

void measure_one(DtypeSupport& support, c10::Device device) {
  const auto dtype = scalar_type(support.name);
  time_matmul(support.matmul_gflops, dtype, device);
  time_conv(support.conv_gflops, dtype, device);
  if (support.path == DtypePath::through_fp32) {
    const StockKernels stock;
    time_matmul(support.stock_matmul_gflops, dtype, device);
    time_conv(support.stock_conv_gflops, dtype, device);
  }
}

} // namespace

void measure(std::vector<DtypeSupport>& dtypes, c10::Device device) {
  // Rounds, so that a moment in which another program computes hits all alike.
  constexpr int kRounds = 3;
  const torch::NoGradGuard no_grad;
  for (int round = 0; round < kRounds; ++round) {
    for (auto& support : dtypes) {
      measure_one(support, device);
    }
  }
  for (auto& support : dtypes) {
    if (!support.matmul_gflops && !support.conv_gflops) {
      support.path = DtypePath::missing;
      support.reason = "LibTorch has no kernel for it here";
    }
  }
}

} // namespace ampkit::zoo
