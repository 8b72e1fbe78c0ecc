#include "kernels/optim_sgd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_sgd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

/// Copies, so that the compiler knows that no store changes them.
struct SgdKernel {
  SgdFactors factors;
  UpdateSpan span;

  template <class D>
  HWY_INLINE hn::Vec<D> direction(D d, hn::Vec<D> grad, size_t i) const {
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

  template <class Grad, class Mirror, class D>
  HWY_INLINE void vector(D d, size_t i) const {
    const auto weight = load_weight<Mirror>(d, span, i);
    const auto unscaled = hn::Mul(
        Grad::load(d, span.grad.data, i), hn::Set(d, factors.inverse_divisor));
    // Not by a product with 0, which is NaN for an infinite weight.
    const auto grad =
        factors.weight_decay == 0
            ? unscaled
            : hn::MulAdd(weight, hn::Set(d, factors.weight_decay), unscaled);
    store_weight<Mirror>(
        d,
        hn::NegMulAdd(direction(d, grad, i), hn::Set(d, factors.lr), weight),
        span,
        i);
  }
};

void sgd(const SgdFactors& factors, const UpdateSpan& span) {
  dispatch_formats(SgdKernel{factors, span}, span);
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
