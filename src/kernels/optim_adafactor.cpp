#include "kernels/optim_adafactor.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optim_adafactor.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optim_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

struct AdafactorRead {
  UpdateSpan span;
  float* columns;
  float sums[2] = {0, 0};

  template <class Grad, class Mirror>
  HWY_INLINE void run(size_t size) {
    sum_along<Grad, Mirror>(*this, size, sums);
  }

  template <class Grad, class Mirror, class D>
  HWY_INLINE void vector(
      D d, size_t i, hn::Vec<D>& gradients, hn::Vec<D>& weights) const {
    const auto weight = load_weight<Mirror>(d, span, i);
    const auto grad = load_gradient<Grad>(d, span, i);
    const auto square = hn::Mul(grad, grad);
    hn::StoreU(hn::Add(hn::LoadU(d, columns + i), square), d, columns + i);
    gradients = hn::Add(gradients, square);
    weights = hn::MulAdd(weight, weight, weights);
  }
};

template <class D>
HWY_INLINE hn::Vec<D> variance_at(
    D d, const AdafactorVariance& variance, size_t i) {
  return hn::Max(
      hn::Mul(hn::LoadU(d, variance.columns + i), hn::Set(d, variance.row)),
      hn::Set(d, variance.least));
}

struct AdafactorMeasure {
  UpdateSpan span;
  AdafactorVariance variance;
  float sums[2] = {0, 0};

  template <class Grad, class Mirror>
  HWY_INLINE void run(size_t size) {
    sum_along<Grad, NoMirror>(*this, size, sums);
  }

  template <class Grad, class Mirror, class D>
  HWY_INLINE void vector(
      D d, size_t i, hn::Vec<D>& squares, hn::Vec<D>&) const {
    const auto grad = load_gradient<Grad>(d, span, i);
    squares = hn::Add(
        squares, hn::Div(hn::Mul(grad, grad), variance_at(d, variance, i)));
  }
};

struct AdafactorApply {
  AdafactorVariance variance;
  float decay;
  float step_size;

  template <class D>
  HWY_INLINE hn::Vec<D> updated(
      D d, hn::Vec<D> weight, hn::Vec<D> gradient, const UpdateSpan&, size_t i)
      const {
    const auto root = hn::Sqrt(variance_at(d, variance, i));
    return hn::NegMulAdd(
        hn::Div(gradient, root),
        hn::Set(d, step_size),
        hn::Mul(weight, hn::Set(d, decay)));
  }
};

constexpr size_t kBlock = 4096;

AdafactorRowSums read_row(const UpdateSpan& row, float* columns) {
  AdafactorRowSums total;
  for (size_t start = 0; start < row.grad.size; start += kBlock) {
    const UpdateSpan block =
        slice(row, start, std::min(kBlock, row.grad.size - start));
    AdafactorRead kernel{block, columns + start};
    dispatch_formats(kernel, block);
    total.gradient_squares += kernel.sums[0];
    total.weight_squares += kernel.sums[1];
  }
  return total;
}

double measure_row(const UpdateSpan& row, const AdafactorVariance& variance) {
  double total = 0;
  for (size_t start = 0; start < row.grad.size; start += kBlock) {
    const UpdateSpan block =
        slice(row, start, std::min(kBlock, row.grad.size - start));
    AdafactorVariance part = variance;
    part.columns += start;
    AdafactorMeasure kernel{block, part};
    dispatch_formats(kernel, block);
    total += kernel.sums[0];
  }
  return total;
}

void apply_row(
    const UpdateSpan& row,
    const AdafactorVariance& variance,
    float decay,
    float step_size) {
  update_elementwise(AdafactorApply{variance, decay, step_size}, row);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampkit::kernels {

HWY_EXPORT(read_row);
HWY_EXPORT(measure_row);
HWY_EXPORT(apply_row);

AdafactorRowSums adafactor_read_row(const UpdateSpan& row, float* columns) {
  return HWY_DYNAMIC_DISPATCH(read_row)(row, columns);
}

double adafactor_measure_row(
    const UpdateSpan& row, const AdafactorVariance& variance) {
  return HWY_DYNAMIC_DISPATCH(measure_row)(row, variance);
}

void adafactor_apply_row(
    const UpdateSpan& row,
    const AdafactorVariance& variance,
    float decay,
    float step_size) {
  HWY_DYNAMIC_DISPATCH(apply_row)(row, variance, decay, step_size);
}

} // namespace ampkit::kernels
#endif
