#include "kernels/optim_rmsprop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_rmsprop.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

struct RmspropRule {
  RmspropFactors factors;

  template <class D>
  HWY_INLINE hn::Vec<D> variance(
      D d, hn::Vec<D> grad, const UpdateSpan& span, size_t i) const {
    const auto square =
        hn::Mul(hn::Mul(grad, hn::Set(d, factors.one_minus_alpha)), grad);
    const auto average = hn::MulAdd(
        hn::LoadU(d, span.first + i), hn::Set(d, factors.alpha), square);
    hn::StoreU(average, d, span.first + i);
    if (!factors.centered) {
      return average;
    }
    auto mean = hn::LoadU(d, span.third + i);
    mean = hn::MulAdd(
        hn::Sub(grad, mean), hn::Set(d, factors.one_minus_alpha), mean);
    hn::StoreU(mean, d, span.third + i);
    return hn::NegMulAdd(mean, mean, average);
  }

  template <class D>
  HWY_INLINE hn::Vec<D> updated(
      D d,
      hn::Vec<D> weight,
      hn::Vec<D> gradient,
      const UpdateSpan& span,
      size_t i) const {
    const auto grad = with_penalty(d, gradient, weight, factors.weight_decay);
    const auto denominator =
        hn::Add(hn::Sqrt(variance(d, grad, span, i)), hn::Set(d, factors.eps));
    auto direction = hn::Div(grad, denominator);
    if (factors.momentum > 0) {
      direction = hn::MulAdd(
          hn::LoadU(d, span.second + i),
          hn::Set(d, factors.momentum),
          direction);
      hn::StoreU(direction, d, span.second + i);
    }
    return hn::NegMulAdd(direction, hn::Set(d, factors.lr), weight);
  }
};

void rmsprop(const RmspropFactors& factors, const UpdateSpan& span) {
  update_elementwise(RmspropRule{factors}, span);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(rmsprop);

void rmsprop_update(const RmspropFactors& factors, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(rmsprop)(factors, span);
}

} // namespace ampkit::kernels
#endif
