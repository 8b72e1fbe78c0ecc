#include "kernels/optim_lion.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_lion.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

struct LionRule {
  LionFactors factors;

  /// `average` * `beta` + `grad` * `rest`.
  template <class D>
  static HWY_INLINE hn::Vec<D> mixed(
      D d, hn::Vec<D> average, hn::Vec<D> grad, float beta, float rest) {
    return hn::MulAdd(
        grad, hn::Set(d, rest), hn::Mul(average, hn::Set(d, beta)));
  }

  template <class D>
  HWY_INLINE hn::Vec<D> updated(
      D d,
      hn::Vec<D> weight,
      hn::Vec<D> gradient,
      const UpdateSpan& span,
      size_t i) const {
    const auto average = hn::LoadU(d, span.first + i);
    const auto direction =
        mixed(d, average, gradient, factors.beta1, factors.one_minus_beta1);
    hn::StoreU(
        mixed(d, average, gradient, factors.beta2, factors.one_minus_beta2),
        d,
        span.first + i);
    const auto size = hn::CopySign(hn::Set(d, factors.lr), direction);
    // 0 has no sign, and NaN must not become a step like any other.
    const auto step = hn::IfThenElse(
        hn::Eq(direction, hn::Zero(d)),
        hn::Zero(d),
        hn::IfThenElse(hn::IsNaN(direction), direction, size));
    return hn::Sub(hn::Mul(weight, hn::Set(d, factors.decay)), step);
  }
};

void lion(const LionFactors& factors, const UpdateSpan& span) {
  update_elementwise(LionRule{factors}, span);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(lion);

void lion_update(const LionFactors& factors, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(lion)(factors, span);
}

} // namespace ampkit::kernels
#endif
