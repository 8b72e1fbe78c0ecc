#include "kernels/optim_gradients.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_gradients.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

template <class Grad, class D>
HWY_INLINE void add_square(D d, const void* data, size_t i, hn::Vec<D>& sum) {
  const auto x = Grad::load(d, data, i);
  sum = hn::MulAdd(x, x, sum);
}

/// Four pieces of a gradient, read side by side: one stream alone does not keep
/// the memory busy, least of all where each page costs a walk through the page
/// tables.
struct Pieces {
  const void* data[4];
  size_t size; // of each
};

/// Non-finite if any element is: squares are not negative, so that nothing can
/// cancel.
template <class Grad>
float sum_of_squares(const Pieces& pieces) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= pieces.size; i += lanes) {
    add_square<Grad>(d, pieces.data[0], i, sum0);
    add_square<Grad>(d, pieces.data[1], i, sum1);
    add_square<Grad>(d, pieces.data[2], i, sum2);
    add_square<Grad>(d, pieces.data[3], i, sum3);
  }
  const auto vectors = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  const hn::CappedTag<float, 1> one;
  auto rest = hn::Set(one, hn::GetLane(hn::SumOfLanes(d, vectors)));
  for (; i < pieces.size; ++i) {
    for (const void* data : pieces.data) {
      add_square<Grad>(one, data, i, rest);
    }
  }
  return hn::GetLane(rest);
}

/// The slow and exact form, for blocks with infinities, NaNs or squares beyond
/// the range of fp32.
template <class Grad, class D>
HWY_INLINE hn::Vec<D> square_exactly(
    D d, const void* data, size_t i, GradientSums& sums) {
  const hn::Rebind<float, D> df;
  const auto x = Grad::load(df, data, i);
  const auto finite = hn::IsFinite(x);
  sums.non_finite += static_cast<int64_t>(hn::CountTrue(df, hn::Not(finite)));
  const auto wide = hn::PromoteTo(d, hn::IfThenElseZero(finite, x));
  return hn::Mul(wide, wide);
}

template <class Grad>
GradientSums sum_exactly(const void* data, size_t size) {
  const hn::ScalableTag<double> d;
  const size_t lanes = hn::Lanes(d);
  GradientSums sums;
  auto total = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    total = hn::Add(total, square_exactly<Grad>(d, data, i, sums));
  }
  sums.sum_of_squares = hn::GetLane(hn::SumOfLanes(d, total));
  const hn::CappedTag<double, 1> one;
  for (; i < size; ++i) {
    sums.sum_of_squares +=
        hn::GetLane(square_exactly<Grad>(one, data, i, sums));
  }
  return sums;
}

/// Adds a block of four pieces to `sums`.
template <class Grad>
void inspect_block(const Pieces& pieces, GradientSums& sums) {
  // Below it, squares may have been rounded to subnormals or to nothing.
  constexpr float kSmallest = 0x1p-90F;
  const float fast = sum_of_squares<Grad>(pieces);
  if (std::isfinite(fast) && fast >= kSmallest) {
    sums.sum_of_squares += fast;
    return;
  }
  for (const void* data : pieces.data) {
    const GradientSums exact = sum_exactly<Grad>(data, pieces.size);
    sums.non_finite += exact.non_finite;
    sums.sum_of_squares += exact.sum_of_squares;
  }
}

template <class Grad>
GradientSums inspect_as(const GradientSpan& grad) {
  constexpr size_t kPiece = 1024; // fp32: a page; four fit the innermost cache
  const size_t quarter = grad.size / 4;
  const auto at = [&](size_t element) {
    return advance(grad.data, element * bytes_of(grad.type));
  };
  GradientSums sums;
  for (size_t start = 0; start < quarter; start += kPiece) {
    inspect_block<Grad>(
        {{at(start),
          at(start + quarter),
          at(start + 2 * quarter),
          at(start + 3 * quarter)},
         std::min(kPiece, quarter - start)},
        sums);
  }
  const size_t rest = grad.size - 4 * quarter;
  const GradientSums last = sum_exactly<Grad>(at(4 * quarter), rest);
  sums.non_finite += last.non_finite;
  sums.sum_of_squares += last.sum_of_squares;
  return sums;
}

template <class Grad>
double add_magnitudes(const GradientSpan& grad) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= grad.size; i += lanes) {
    sum = hn::Add(sum, hn::PromoteTo(d, hn::Abs(Grad::load(df, grad.data, i))));
  }
  double total = hn::GetLane(hn::SumOfLanes(d, sum));
  const hn::CappedTag<float, 1> one;
  for (; i < grad.size; ++i) {
    total += hn::GetLane(hn::Abs(Grad::load(one, grad.data, i)));
  }
  return total;
}

template <class Grad>
double max_magnitude(const GradientSpan& grad) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= grad.size; i += lanes) {
    largest = hn::Max(largest, hn::Abs(Grad::load(d, grad.data, i)));
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, largest));
  const hn::CappedTag<float, 1> one;
  for (; i < grad.size; ++i) {
    result =
        std::max(result, hn::GetLane(hn::Abs(Grad::load(one, grad.data, i))));
  }
  return result;
}

GradientSums inspect(const GradientSpan& grad) {
  switch (grad.type) {
    case Float::bf16:
      return inspect_as<Bf16Array>(grad);
    case Float::fp16:
      return inspect_as<Fp16Array>(grad);
    default:
      return inspect_as<Fp32Array>(grad);
  }
}

double sum_magnitudes(const GradientSpan& grad) {
  switch (grad.type) {
    case Float::bf16:
      return add_magnitudes<Bf16Array>(grad);
    case Float::fp16:
      return add_magnitudes<Fp16Array>(grad);
    default:
      return add_magnitudes<Fp32Array>(grad);
  }
}

double find_largest(const GradientSpan& grad) {
  switch (grad.type) {
    case Float::bf16:
      return max_magnitude<Bf16Array>(grad);
    case Float::fp16:
      return max_magnitude<Fp16Array>(grad);
    default:
      return max_magnitude<Fp32Array>(grad);
  }
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(inspect);
HWY_EXPORT(sum_magnitudes);
HWY_EXPORT(find_largest);

GradientSums inspect_gradient(const GradientSpan& grad) {
  return HWY_DYNAMIC_DISPATCH(inspect)(grad);
}

double sum_of_magnitudes(const GradientSpan& grad) {
  return HWY_DYNAMIC_DISPATCH(sum_magnitudes)(grad);
}

double largest_magnitude(const GradientSpan& grad) {
  return HWY_DYNAMIC_DISPATCH(find_largest)(grad);
}

} // namespace ampkit::kernels
#endif
