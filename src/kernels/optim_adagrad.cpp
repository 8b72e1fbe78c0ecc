#include "kernels/optim_adagrad.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_adagrad.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

struct AdagradRule {
  AdagradFactors factors;

  template <class D>
  HWY_INLINE hn::Vec<D> updated(
      D d,
      hn::Vec<D> weight,
      hn::Vec<D> gradient,
      const UpdateSpan& span,
      size_t i) const {
    const auto grad = with_penalty(d, gradient, weight, factors.weight_decay);
    const auto sum = hn::MulAdd(grad, grad, hn::LoadU(d, span.first + i));
    hn::StoreU(sum, d, span.first + i);
    const auto denominator = hn::Add(hn::Sqrt(sum), hn::Set(d, factors.eps));
    return hn::NegMulAdd(
        hn::Div(grad, denominator), hn::Set(d, factors.step_size), weight);
  }
};

void adagrad(const AdagradFactors& factors, const UpdateSpan& span) {
  update_elementwise(AdagradRule{factors}, span);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(adagrad);

void adagrad_update(const AdagradFactors& factors, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(adagrad)(factors, span);
}

} // namespace ampkit::kernels
#endif
