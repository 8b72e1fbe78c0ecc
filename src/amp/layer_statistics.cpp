#include "amp/layer_statistics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace ampkit {
namespace {

constexpr int kCounts = 8;

// Where the classes of magnitudes begin, for one 16-bit dtype.
struct Bounds {
  float kept = 0; // rounds to the smallest number or more
  float above_lowest = 0;
  float normal = 0;
  float beyond = 0; // rounds to inf
};

Bounds bounds_of(at::ScalarType low) {
  if (low == at::kHalf) {
    // 2^-25 is a tie, and rounds to zero; 65520 is one, and rounds to inf.
    return {
        .kept = std::bit_cast<float>(std::bit_cast<uint32_t>(0x1p-25F) + 1),
        .above_lowest = 0x1p-21F,
        .normal = 0x1p-14F,
        .beyond = 65520.0F};
  }
  return {
      .kept = std::bit_cast<float>(std::bit_cast<uint32_t>(0x1p-134F) + 1),
      .above_lowest = 0x1p-130F,
      .normal = 0x1p-126F,
      .beyond = 0x1.FFp127F};
}

// Magnitudes as integers: same order, and NaN above infinity.
template <class T>
struct Bits;
template <>
struct Bits<float> {
  using Int = uint32_t;
  static constexpr Int kMagnitude = 0x7FFFFFFF;
  static constexpr Int kInfinity = 0x7F800000;
};
template <>
struct Bits<at::Half> {
  using Int = uint16_t;
  static constexpr Int kMagnitude = 0x7FFF;
  static constexpr Int kInfinity = 0x7C00;
};
template <>
struct Bits<at::BFloat16> {
  using Int = uint16_t;
  static constexpr Int kMagnitude = 0x7FFF;
  static constexpr Int kInfinity = 0x7F80;
};

// The same bounds as bits of T, which holds them exactly but for those that
// its own numbers can't lie beyond.
template <class T>
struct BitBounds {
  using Int = typename Bits<T>::Int;
  Int kept = 1;
  Int above_lowest = 0;
  Int normal = 0;
  Int beyond = Bits<T>::kInfinity;

  explicit BitBounds(const Bounds& bounds)
      : above_lowest(std::bit_cast<Int>(static_cast<T>(bounds.above_lowest))),
        normal(std::bit_cast<Int>(static_cast<T>(bounds.normal))) {
    if constexpr (std::is_same_v<T, float>) {
      kept = std::bit_cast<Int>(bounds.kept);
      beyond = std::bit_cast<Int>(bounds.beyond);
    }
  }
};

// Visits the elements first, first + step, ... of a tensor in memory order if
// it has no gaps, else in the order of its indices.
template <class Int, class Visit>
void visit_elements(const at::Tensor& tensor, int64_t step, Visit visit) {
  const auto* data = static_cast<const Int*>(tensor.const_data_ptr());
  const int64_t size = tensor.numel();
  if (tensor.is_non_overlapping_and_dense()) {
    for (int64_t i = 0; i < size; i += step) {
      visit(data[i]);
    }
    return;
  }
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (int64_t i = 0; i < size; i += step) {
    int64_t rest = i;
    int64_t offset = 0;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      offset += rest % sizes[dim] * strides[dim];
      rest /= sizes[dim];
    }
    visit(data[offset]);
  }
}

// Odd if it can be, so that a stride over rows does not stay in one column.
int64_t step_for(int64_t size, int64_t max_elements) {
  // Rounded up; max_elements may be as large as an int64 can be.
  const int64_t step = size > 0 ? (size - 1) / max_elements + 1 : 1;
  return std::max<int64_t>(step > 1 ? step | 1 : step, 1);
}

template <class T>
TensorCounts count_as(
    const at::Tensor& tensor, at::ScalarType low, int64_t max_elements) {
  using Int = typename Bits<T>::Int;
  const BitBounds<T> bounds(bounds_of(low));
  TensorCounts counts;
  Int amax = 0;
  visit_elements<Int>(
      tensor, step_for(tensor.numel(), max_elements), [&](Int bits) {
        const Int size = bits & Bits<T>::kMagnitude;
        const bool finite = size < Bits<T>::kInfinity;
        const bool zero = size == 0;
        const bool lost = !zero && size < bounds.kept;
        ++counts.elements;
        counts.non_finite += !finite;
        counts.beyond += finite && size >= bounds.beyond;
        counts.zero += zero;
        counts.lost += lost;
        counts.lowest += size >= bounds.kept && size < bounds.above_lowest;
        counts.subnormal += size >= bounds.kept && size < bounds.normal;
        amax = finite && size > amax ? size : amax;
      });
  counts.amax = static_cast<double>(static_cast<float>(std::bit_cast<T>(amax)));
  return counts;
}

at::ScalarType low_of(const at::Tensor& tensor, at::ScalarType low) {
  return tensor.scalar_type() == at::kFloat ? low : tensor.scalar_type();
}

} // namespace

TensorCounts& TensorCounts::operator+=(const TensorCounts& other) {
  elements += other.elements;
  non_finite += other.non_finite;
  beyond += other.beyond;
  zero += other.zero;
  lost += other.lost;
  subnormal += other.subnormal;
  lowest += other.lowest;
  amax = std::max(amax, other.amax);
  return *this;
}

TensorCounts count_elements(
    const at::Tensor& tensor, at::ScalarType low, int64_t max_elements) {
  low = low_of(tensor, low);
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return count_as<float>(tensor, low, max_elements);
    case at::kHalf:
      return count_as<at::Half>(tensor, low, max_elements);
    case at::kBFloat16:
      return count_as<at::BFloat16>(tensor, low, max_elements);
    default:
      TORCH_INTERNAL_ASSERT(false, "count_elements: ", tensor.scalar_type());
  }
}

at::Tensor count_on_device(
    const at::Tensor& tensor, at::ScalarType low, int64_t max_elements) {
  const Bounds bounds = bounds_of(low_of(tensor, low));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::array<float, kCounts - 1> limits{
      0,
      std::numeric_limits<float>::denorm_min(),
      bounds.kept,
      bounds.above_lowest,
      bounds.normal,
      bounds.beyond,
      kInfinity};
  const auto flat = tensor.detach().reshape({-1});
  const auto size =
      flat.slice(0, 0, flat.numel(), step_for(flat.numel(), max_elements))
          .to(at::kFloat)
          .abs();
  // One column a limit: how many elements reach it; NaN reaches none.
  const auto reached = at::stack(
      {at::scalar_tensor(size.numel(), size.options().dtype(at::kDouble)),
       at::where(size < kInfinity, size, 0).amax().to(at::kDouble)});
  std::vector<at::Tensor> columns{reached};
  for (const float limit : limits) {
    columns.push_back((size >= limit).sum().to(at::kDouble).reshape({1}));
  }
  return at::cat(columns);
}

TensorCounts counts_from(const at::Tensor& counts) {
  const auto* values = counts.const_data_ptr<double>();
  const auto reached = [&](int limit) {
    return static_cast<int64_t>(values[2 + limit]);
  };
  TensorCounts result;
  result.elements = static_cast<int64_t>(values[0]);
  result.amax = values[1];
  result.non_finite = result.elements - reached(0) + reached(6);
  result.zero = reached(0) - reached(1);
  result.lost = reached(1) - reached(2);
  result.lowest = reached(2) - reached(3);
  result.subnormal = reached(2) - reached(4);
  result.beyond = reached(5) - reached(6);
  return result;
}

TensorStatistics shares(const TensorCounts& counts, const ZeroRule& zeros) {
  TensorStatistics result{.elements = counts.elements, .amax = counts.amax};
  if (counts.elements == 0) {
    return result;
  }
  const auto all = static_cast<double>(counts.elements);
  result.overflow =
      static_cast<double>(counts.non_finite + counts.beyond) / all;
  const auto non_zero =
      static_cast<double>(counts.elements - counts.zero - counts.non_finite);
  auto lost = static_cast<double>(counts.lost);
  if (zeros.was_16bit) {
    const double suspect = std::max(
        0.0, static_cast<double>(counts.zero) - zeros.structural * all);
    const double proportion =
        non_zero > 0
            ? static_cast<double>(counts.lowest + counts.lost) / non_zero
            : static_cast<double>(zeros.all_zero_is_loss);
    lost += suspect * proportion;
  }
  const double meant = non_zero - static_cast<double>(counts.lost) + lost;
  result.underflow = meant > 0 ? lost / meant : 0;
  result.subnormal =
      non_zero > 0 ? static_cast<double>(counts.subnormal) / non_zero : 0;
  return result;
}

double largest(at::ScalarType low) {
  return low == at::kHalf ? 65504.0 : 0x1.FEp127;
}

} // namespace ampkit
