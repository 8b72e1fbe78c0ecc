#include "kernels/optim_adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_adamw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

/// Copies, so that the compiler knows that no store changes them.
struct AdamWKernel {
  AdamWFactors factors;
  UpdateSpan span;

  template <class Grad, class Mirror, class D>
  HWY_INLINE void vector(D d, size_t i) const {
    const auto grad = hn::Mul(
        Grad::load(d, span.grad.data, i), hn::Set(d, factors.inverse_divisor));
    auto first = hn::LoadU(d, span.first + i);
    first = hn::MulAdd(
        hn::Sub(grad, first), hn::Set(d, factors.one_minus_beta1), first);
    const auto square =
        hn::Mul(hn::Mul(grad, hn::Set(d, factors.one_minus_beta2)), grad);
    const auto second = hn::MulAdd(
        hn::LoadU(d, span.second + i), hn::Set(d, factors.beta2), square);
    hn::StoreU(first, d, span.first + i);
    hn::StoreU(second, d, span.second + i);
    const auto denominator = hn::Add(hn::Sqrt(second), hn::Set(d, factors.eps));
    const auto decayed =
        hn::Mul(load_weight<Mirror>(d, span, i), hn::Set(d, factors.decay));
    const auto weight = hn::NegMulAdd(
        hn::Div(first, denominator), hn::Set(d, factors.step_size), decayed);
    store_weight<Mirror>(d, weight, span, i);
  }
};

void adamw(const AdamWFactors& factors, const UpdateSpan& span) {
  dispatch_formats(AdamWKernel{factors, span}, span);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(adamw);

void adamw_update(const AdamWFactors& factors, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(adamw)(factors, span);
}

} // namespace ampkit::kernels
#endif
