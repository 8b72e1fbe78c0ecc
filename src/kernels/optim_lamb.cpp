#include "kernels/optim_lamb.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_lamb.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

/// What is to be subtracted, before the trust ratio.
template <class D>
HWY_INLINE hn::Vec<D> lamb_direction(
    D d,
    const LambFactors& factors,
    hn::Vec<D> first,
    hn::Vec<D> second,
    hn::Vec<D> weight) {
  const auto denominator = hn::MulAdd(
      hn::Sqrt(second),
      hn::Set(d, factors.root_factor),
      hn::Set(d, factors.eps));
  const auto adam =
      hn::Div(hn::Mul(first, hn::Set(d, factors.first_factor)), denominator);
  return with_penalty(d, adam, weight, factors.weight_decay);
}

/// One block of the first half.
struct LambMoments {
  LambFactors factors;
  UpdateSpan span;
  float sums[2] = {0, 0};

  template <class Grad, class Mirror>
  HWY_INLINE void run(size_t size) {
    sum_along<Grad, Mirror>(*this, size, sums);
  }

  template <class Grad, class Mirror, class D>
  HWY_INLINE void vector(
      D d, size_t i, hn::Vec<D>& weights, hn::Vec<D>& directions) const {
    const auto weight = load_weight<Mirror>(d, span, i);
    const auto grad = load_gradient<Grad>(d, span, i);
    const auto first = hn::MulAdd(
        grad,
        hn::Set(d, factors.one_minus_beta1),
        hn::Mul(hn::LoadU(d, span.first + i), hn::Set(d, factors.beta1)));
    const auto second = hn::MulAdd(
        hn::Mul(grad, grad),
        hn::Set(d, factors.one_minus_beta2),
        hn::Mul(hn::LoadU(d, span.second + i), hn::Set(d, factors.beta2)));
    hn::StoreU(first, d, span.first + i);
    hn::StoreU(second, d, span.second + i);
    const auto direction = lamb_direction(d, factors, first, second, weight);
    weights = hn::MulAdd(weight, weight, weights);
    directions = hn::MulAdd(direction, direction, directions);
  }
};

struct LambApply {
  LambFactors factors;
  float step_size;
  UpdateSpan span;

  template <class Grad, class Mirror>
  HWY_INLINE void run(size_t size) const {
    run_along<Grad, Mirror>(*this, size);
  }

  template <class Grad, class Mirror, class D>
  HWY_INLINE void vector(D d, size_t i) const {
    const auto weight = load_weight<Mirror>(d, span, i);
    const auto direction = lamb_direction(
        d,
        factors,
        hn::LoadU(d, span.first + i),
        hn::LoadU(d, span.second + i),
        weight);
    store_weight<Mirror>(
        d, hn::NegMulAdd(direction, hn::Set(d, step_size), weight), span, i);
  }
};

LambSums moments(const LambFactors& factors, const UpdateSpan& span) {
  constexpr size_t kBlock = 4096;
  LambSums total;
  for (size_t start = 0; start < span.grad.size; start += kBlock) {
    const UpdateSpan block =
        slice(span, start, std::min(kBlock, span.grad.size - start));
    LambMoments kernel{factors, block};
    dispatch_formats(kernel, block);
    total.weight_squares += kernel.sums[0];
    total.direction_squares += kernel.sums[1];
  }
  return total;
}

void apply(
    const LambFactors& factors, float step_size, const UpdateSpan& span) {
  const LambApply kernel{factors, step_size, span};
  dispatch_formats(kernel, span);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(moments);
HWY_EXPORT(apply);

LambSums lamb_moments(const LambFactors& factors, const UpdateSpan& span) {
  return HWY_DYNAMIC_DISPATCH(moments)(factors, span);
}

void lamb_apply(
    const LambFactors& factors, float step_size, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(apply)(factors, step_size, span);
}

} // namespace ampkit::kernels
#endif
