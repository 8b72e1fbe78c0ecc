#include "kernels/optim_adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_adam.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

struct AdamRule {
  AdamFactors factors;

  template <class D>
  HWY_INLINE hn::Vec<D> updated(
      D d,
      hn::Vec<D> weight,
      hn::Vec<D> gradient,
      const UpdateSpan& span,
      size_t i) const {
    const auto grad = with_penalty(d, gradient, weight, factors.penalty);
    auto first = hn::LoadU(d, span.first + i);
    first = hn::MulAdd(
        hn::Sub(grad, first), hn::Set(d, factors.one_minus_beta1), first);
    const auto square =
        hn::Mul(hn::Mul(grad, hn::Set(d, factors.one_minus_beta2)), grad);
    auto second = hn::MulAdd(
        hn::LoadU(d, span.second + i), hn::Set(d, factors.beta2), square);
    hn::StoreU(first, d, span.first + i);
    hn::StoreU(second, d, span.second + i);
    if (factors.amsgrad) {
      second = hn::Max(second, hn::LoadU(d, span.third + i));
      hn::StoreU(second, d, span.third + i);
    }
    const auto denominator = hn::Add(hn::Sqrt(second), hn::Set(d, factors.eps));
    return hn::NegMulAdd(
        hn::Div(first, denominator),
        hn::Set(d, factors.step_size),
        hn::Mul(weight, hn::Set(d, factors.decay)));
  }
};

void adam(const AdamFactors& factors, const UpdateSpan& span) {
  update_elementwise(AdamRule{factors}, span);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(adam);

void adam_update(const AdamFactors& factors, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(adam)(factors, span);
}

} // namespace ampkit::kernels
#endif
