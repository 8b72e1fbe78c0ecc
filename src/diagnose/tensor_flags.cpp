#include "diagnose/tensor_flags.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace ampkit::diagnose {
namespace {

constexpr uint8_t kNanBit = 1;
constexpr uint8_t kPositiveBit = 2;
constexpr uint8_t kNegativeBit = 4;
constexpr int64_t kBlock = 4096;
constexpr int64_t kGrain = 1 << 16;

// Signed integers of a dtype's width: magnitudes have the order of numbers,
// and NaN stands above infinity.
template <class T, class Int, Int infinity>
struct Layout {
  using Number = T;
  using Type = Int;
  static constexpr Int kInfinity = infinity;
  static constexpr Int kMagnitude = std::numeric_limits<Int>::max();
};
using FloatLayout = Layout<float, int32_t, 0x7F800000>;
using DoubleLayout = Layout<double, int64_t, 0x7FF0000000000000>;
using HalfLayout = Layout<at::Half, int16_t, 0x7C00>;
using BFloat16Layout = Layout<at::BFloat16, int16_t, 0x7F80>;

template <class Visit>
auto with_layout(at::ScalarType dtype, const Visit& visit) {
  // NOLINTNEXTLINE(bugprone-branch-clone): each has another type
  switch (dtype) {
    case at::kFloat:
      return visit(FloatLayout{});
    case at::kDouble:
      return visit(DoubleLayout{});
    case at::kHalf:
      return visit(HalfLayout{});
    case at::kBFloat16:
      return visit(BFloat16Layout{});
    default:
      TORCH_INTERNAL_ASSERT(false, "tensor_flags: ", dtype);
  }
}

// No branch inside, for vectors.
template <class L>
bool any_bad(const typename L::Type* data, int64_t size) {
  using Int = typename L::Type;
  Int bad = 0;
#pragma omp simd reduction(| : bad)
  for (int64_t i = 0; i < size; ++i) {
    const Int magnitude = static_cast<Int>(data[i] & L::kMagnitude);
    bad = static_cast<Int>(bad | -(magnitude >= L::kInfinity));
  }
  return bad != 0;
}

template <class L>
uint8_t bits_of(const typename L::Type* data, int64_t size) {
  uint8_t bits = 0;
  for (int64_t i = 0; i < size; ++i) {
    const auto magnitude =
        static_cast<typename L::Type>(data[i] & L::kMagnitude);
    if (magnitude > L::kInfinity) {
      bits |= kNanBit;
    } else if (magnitude == L::kInfinity) {
      bits |= data[i] < 0 ? kNegativeBit : kPositiveBit;
    }
  }
  return bits;
}

template <class L>
uint8_t scan(const typename L::Type* data, int64_t size) {
  uint8_t bits = 0;
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t count = std::min(kBlock, size - i);
    if (any_bad<L>(data + i, count)) {
      bits |= bits_of<L>(data + i, count);
    }
  }
  return bits;
}

// On the CPU and without gaps, whatever order the elements are in.
at::Tensor dense_on_host(const at::Tensor& tensor) {
  const auto plain = tensor.detach().cpu();
  return plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
}

// Only reads, without going through the dispatcher if it can be helped: this
// runs for every op of a step.
at::Tensor readable(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_non_overlapping_and_dense() &&
      !tensor.is_neg()) {
    return tensor;
  }
  const c10::NoGradGuard no_grad;
  return dense_on_host(tensor.is_neg() ? tensor.resolve_neg() : tensor);
}

} // namespace

Flags Flags::operator|(const Flags& other) const {
  return {
      .nan = nan || other.nan,
      .positive_inf = positive_inf || other.positive_inf,
      .negative_inf = negative_inf || other.negative_inf};
}

bool is_watched_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
         dtype == at::kBFloat16;
}

bool is_watched(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided ||
      !is_watched_dtype(tensor.scalar_type()) || !tensor.has_storage() ||
      tensor.is_meta()) {
    return false;
  }
  return tensor.numel() > 0 && tensor.storage().data() != nullptr;
}

Flags flags_of(const at::Tensor& tensor) {
  const auto source = readable(tensor);
  std::atomic<uint8_t> bits = 0;
  with_layout(source.scalar_type(), [&](auto layout) {
    using L = decltype(layout);
    const auto* data =
        static_cast<const typename L::Type*>(source.const_data_ptr());
    if (source.numel() <= kGrain) {
      bits = scan<L>(data, source.numel());
      return;
    }
    at::parallel_for(
        0, source.numel(), kGrain, [&](int64_t begin, int64_t end) {
          bits |= scan<L>(data + begin, end - begin);
        });
  });
  return flags_from(bits);
}

at::Tensor flags_on_device(const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const auto values = tensor.detach();
  const auto bit = [](const at::Tensor& mask, int64_t value) {
    return mask.any().to(at::kByte).mul_(value);
  };
  return bit(at::isnan(values), kNanBit)
      .add_(bit(at::isposinf(values), kPositiveBit))
      .add_(bit(at::isneginf(values), kNegativeBit));
}

Flags flags_from(uint8_t bits) {
  return {
      .nan = (bits & kNanBit) != 0,
      .positive_inf = (bits & kPositiveBit) != 0,
      .negative_inf = (bits & kNegativeBit) != 0};
}

double share_of_zeros(const at::Tensor& tensor) {
  const auto source = readable(tensor);
  int64_t zeros = 0;
  with_layout(source.scalar_type(), [&](auto layout) {
    using L = decltype(layout);
    const auto* data =
        static_cast<const typename L::Type*>(source.const_data_ptr());
    for (int64_t i = 0; i < source.numel(); ++i) {
      zeros += (data[i] & L::kMagnitude) == 0;
    }
  });
  return static_cast<double>(zeros) / static_cast<double>(source.numel());
}

double largest_magnitude(const at::Tensor& tensor) {
  const auto source = readable(tensor);
  return with_layout(source.scalar_type(), [&](auto layout) {
    using L = decltype(layout);
    const auto* data =
        static_cast<const typename L::Type*>(source.const_data_ptr());
    typename L::Type largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < source.numel(); ++i) {
      const auto magnitude =
          static_cast<typename L::Type>(data[i] & L::kMagnitude);
      largest = magnitude > largest ? magnitude : largest;
    }
    return static_cast<double>(std::bit_cast<typename L::Number>(largest));
  });
}

} // namespace ampkit::diagnose
