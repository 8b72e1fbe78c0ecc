#include "kernels/optim_sgd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_sgd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

struct SgdRule {
  SgdFactors factors;

  template <class D>
  HWY_INLINE hn::Vec<D> direction(
      D d, hn::Vec<D> grad, const UpdateSpan& span, size_t i) const {
    if (span.first == nullptr) {
      return grad;
    }
    auto buffer = grad;
    if (!factors.first_step) {
      buffer = hn::MulAdd(
          hn::LoadU(d, span.first + i),
          hn::Set(d, factors.momentum),
          hn::Mul(grad, hn::Set(d, factors.one_minus_dampening)));
    }
    hn::StoreU(buffer, d, span.first + i);
    return factors.nesterov
               ? hn::MulAdd(buffer, hn::Set(d, factors.momentum), grad)
               : buffer;
  }

  template <class D>
  HWY_INLINE hn::Vec<D> updated(
      D d,
      hn::Vec<D> weight,
      hn::Vec<D> gradient,
      const UpdateSpan& span,
      size_t i) const {
    const auto grad = with_penalty(d, gradient, weight, factors.weight_decay);
    return hn::NegMulAdd(
        direction(d, grad, span, i), hn::Set(d, factors.lr), weight);
  }
};

void sgd(const SgdFactors& factors, const UpdateSpan& span) {
  update_elementwise(SgdRule{factors}, span);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(sgd);

void sgd_update(const SgdFactors& factors, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(sgd)(factors, span);
}

} // namespace ampkit::kernels
#endif
