// Vector loads and stores of fp32, fp16 and bf16 arrays as fp32, included once
// for each instruction set by the kernels of this folder.

// Highway's per-target include guard.
#if defined(AMPKIT_KERNELS_OPTIM_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AMPKIT_KERNELS_OPTIM_CONVERT_INL_H_
#undef AMPKIT_KERNELS_OPTIM_CONVERT_INL_H_
#else
#define AMPKIT_KERNELS_OPTIM_CONVERT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>

#include "kernels/optim_span.h"

HWY_BEFORE_NAMESPACE();
namespace ampkit::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Bits32 = hn::RebindToUnsigned<D>;

/// The lower 16 bits of each lane, which hold all that is set.
template <class D>
HWY_INLINE void store_low_half(
    D d, hn::Vec<Bits32<D>> bits, void* data, size_t i) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToSigned<D> di;
  hn::StoreU(
      hn::DemoteTo(d16, hn::BitCast(di, bits)),
      d16,
      static_cast<uint16_t*>(data) + i);
  (void)d;
}

template <class D>
HWY_INLINE hn::Vec<Bits32<D>> load_low_half(D, const void* data, size_t i) {
  const hn::Rebind<uint16_t, D> d16;
  return hn::PromoteTo(
      Bits32<D>(), hn::LoadU(d16, static_cast<const uint16_t*>(data) + i));
}

/// How arrays of one format are read, rounded to and written. `round` is
/// to nearest, ties to even, as at::Tensor::to() does it, and gives fp32.
struct Fp32Array {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* data, size_t i) {
    return hn::LoadU(d, static_cast<const float*>(data) + i);
  }
};

struct Bf16Array {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* data, size_t i) {
    return hn::BitCast(d, hn::ShiftLeft<16>(load_low_half(d, data, i)));
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> round(D d, hn::Vec<D> value) {
    const Bits32<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto up = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
    // A NaN whose low bits carried over would become an infinity.
    const auto nan = hn::Set(du, 0x7FC00000);
    const auto rounded = hn::IfThenElse(
        hn::RebindMask(du, hn::IsNaN(value)),
        nan,
        hn::And(up, hn::Set(du, 0xFFFF0000)));
    return hn::BitCast(d, rounded);
  }

  /// `value`: what round() gave.
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, void* data, size_t i) {
    const Bits32<D> du;
    store_low_half(d, hn::ShiftRight<16>(hn::BitCast(du, value)), data, i);
  }
};

struct Fp16Array {
// From here on the instruction set converts by itself, with correct rounding.
// Highway's replacement for older ones truncates.
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 ||  \
    HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SCALAR || \
    HWY_TARGET == HWY_EMU128
  // Exact: scaling by 2^112 moves a half's exponent, subnormals included, to
  // where a float has it.
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<Bits32<D>> half) {
    const Bits32<D> du;
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000)));
    const auto magnitude =
        hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7FFF)));
    const auto scaled =
        hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112F));
    // Infinity and NaN of a half are finite here: give them the top exponent.
    const auto special = hn::Gt(magnitude, hn::Set(du, 0x0F7FFFFF));
    const auto bits = hn::IfThenElse(
        special,
        hn::Or(magnitude, hn::Set(du, 0x7F800000)),
        hn::BitCast(du, scaled));
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<Bits32<D>> narrow(D d, hn::Vec<D> value) {
    const Bits32<D> du;
    const auto all = hn::BitCast(du, value);
    const auto sign = hn::And(all, hn::Set(du, 0x80000000));
    const auto bits = hn::Xor(all, sign);
    // Subnormal halves: adding 0.5 lets the addition round at bit 2^-24.
    const auto half = hn::Set(d, 0.5F);
    const auto tiny = hn::Sub(
        hn::BitCast(du, hn::Add(hn::BitCast(d, bits), half)),
        hn::BitCast(du, half));
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1));
    const auto rebased = hn::Sub(bits, hn::Set(du, 112U << 23));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(rebased, hn::Add(odd, hn::Set(du, 0xFFF))));
    const auto is_tiny = hn::Lt(bits, hn::Set(du, 113U << 23));
    // From 65520 on, halfway above the greatest half, the result is infinite.
    const auto is_large = hn::Gt(bits, hn::Set(du, 0x477FEFFF));
    const auto is_nan = hn::Gt(bits, hn::Set(du, 0x7F800000));
    auto result = hn::IfThenElse(is_tiny, tiny, normal);
    result = hn::IfThenElse(is_large, hn::Set(du, 0x7C00), result);
    result = hn::IfThenElse(is_nan, hn::Set(du, 0x7E00), result);
    return hn::Or(result, hn::ShiftRight<16>(sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* data, size_t i) {
    return widen(d, load_low_half(d, data, i));
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> round(D d, hn::Vec<D> value) {
    return widen(d, narrow(d, value));
  }

  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, void* data, size_t i) {
    store_low_half(d, narrow(d, value), data, i);
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const void* data, size_t i) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const auto* halves = static_cast<const hwy::float16_t*>(data);
    return hn::PromoteTo(d, hn::LoadU(d16, halves + i));
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> round(D d, hn::Vec<D> value) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::DemoteTo(d16, value));
  }

  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, void* data, size_t i) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(
        hn::DemoteTo(d16, value), d16, static_cast<hwy::float16_t*>(data) + i);
  }
#endif
};

/// Calls `kernel.vector(d, grad format, mirror format, i)` along `size`
/// elements: whole vectors first, then one element at a time, which gives each
/// element the same value wherever a span begins.
template <class Grad, class Mirror, class Kernel>
HWY_INLINE void run_along(const Kernel& kernel, size_t size) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    kernel.template vector<Grad, Mirror>(d, i);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < size; ++i) {
    kernel.template vector<Grad, Mirror>(one, i);
  }
}

/// Likewise, for kernels that add up two numbers along the way:
/// `kernel.vector(d, i, first sum, second sum)`. Gives both, in fp32.
template <class Grad, class Mirror, class Kernel>
HWY_INLINE void sum_along(const Kernel& kernel, size_t size, float (&sums)[2]) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto first = hn::Zero(d);
  auto second = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    kernel.template vector<Grad, Mirror>(d, i, first, second);
  }
  const hn::CappedTag<float, 1> one;
  auto first_of_rest = hn::Set(one, hn::GetLane(hn::SumOfLanes(d, first)));
  auto second_of_rest = hn::Set(one, hn::GetLane(hn::SumOfLanes(d, second)));
  for (; i < size; ++i) {
    kernel.template vector<Grad, Mirror>(one, i, first_of_rest, second_of_rest);
  }
  sums[0] = hn::GetLane(first_of_rest);
  sums[1] = hn::GetLane(second_of_rest);
}

/// An fp32 parameter, which is its own master.
struct NoMirror {};

/// The gradient as an update takes it: unscaled, clipped, of the wanted sign.
template <class Grad, class D>
HWY_INLINE hn::Vec<D> load_gradient(D d, const UpdateSpan& span, size_t i) {
  const auto grad =
      hn::Mul(Grad::load(d, span.grad.data, i), hn::Set(d, span.grad_factor));
  if (span.clip_value == std::numeric_limits<float>::infinity()) {
    return grad;
  }
  const auto limit = hn::Set(d, span.clip_value);
  const auto clipped = hn::Min(hn::Max(grad, hn::Neg(limit)), limit);
  // The processor's minimum and maximum may give the limit for a NaN.
  return hn::IfThenElse(hn::IsNaN(grad), grad, clipped);
}

/// The weight to update: the master, or the parameter where it was changed by
/// somebody else since the last step, so that it is not what the master rounds
/// to. Loaded weights are thus never overwritten with a stale master, and an
/// unchanged parameter keeps all bits of its master.
template <class Mirror, class D>
HWY_INLINE hn::Vec<D> load_weight(D d, const UpdateSpan& span, size_t i) {
  const auto master = hn::LoadU(d, span.weight + i);
  if constexpr (std::is_same_v<Mirror, NoMirror>) {
    return master;
  } else {
    const auto seen = Mirror::load(d, span.mirror, i);
    const auto is_current = hn::Eq(Mirror::round(d, master), seen);
    return hn::IfThenElse(is_current, master, seen);
  }
}

template <class Mirror, class D>
HWY_INLINE void store_weight(
    D d, hn::Vec<D> weight, const UpdateSpan& span, size_t i) {
  hn::StoreU(weight, d, span.weight + i);
  if constexpr (!std::is_same_v<Mirror, NoMirror>) {
    Mirror::store(d, Mirror::round(d, weight), span.mirror, i);
  }
}

template <class Grad, class Kernel>
HWY_INLINE void dispatch_mirror(Kernel& kernel, const UpdateSpan& span) {
  if (span.mirror == nullptr) {
    kernel.template run<Grad, NoMirror>(span.grad.size);
  } else if (span.mirror_type == Float::bf16) {
    kernel.template run<Grad, Bf16Array>(span.grad.size);
  } else {
    kernel.template run<Grad, Fp16Array>(span.grad.size);
  }
}

/// Calls `kernel.run<gradient format, mirror format>(size)` as `span` says.
template <class Kernel>
HWY_INLINE void dispatch_formats(Kernel& kernel, const UpdateSpan& span) {
  switch (span.grad.type) {
    case Float::fp32:
      return dispatch_mirror<Fp32Array>(kernel, span);
    case Float::bf16:
      return dispatch_mirror<Bf16Array>(kernel, span);
    case Float::fp16:
      return dispatch_mirror<Fp16Array>(kernel, span);
  }
}

/// Holds copies, so that the compiler knows that no store changes them.
template <class Rule>
struct ElementwiseKernel {
  Rule rule;
  UpdateSpan span;

  template <class Grad, class Mirror>
  HWY_INLINE void run(size_t size) const {
    run_along<Grad, Mirror>(*this, size);
  }

  template <class Grad, class Mirror, class D>
  HWY_INLINE void vector(D d, size_t i) const {
    const auto weight = load_weight<Mirror>(d, span, i);
    const auto grad = load_gradient<Grad>(d, span, i);
    store_weight<Mirror>(d, rule.updated(d, weight, grad, span, i), span, i);
  }
};

/// Updates `span` by `rule`, which says only what is special to it:
/// `rule.updated(d, weight, gradient, span, i)` writes the moments and gives
/// the new weight.
template <class Rule>
HWY_INLINE void update_elementwise(const Rule& rule, const UpdateSpan& span) {
  const ElementwiseKernel<Rule> kernel{rule, span};
  dispatch_formats(kernel, span);
}

/// `gradient` + `decay` * `weight`: weight decay as an L2 penalty. Not by a
/// product with 0, which is NaN for an infinite weight.
template <class D>
HWY_INLINE hn::Vec<D> with_penalty(
    D d, hn::Vec<D> gradient, hn::Vec<D> weight, float decay) {
  return decay == 0 ? gradient
                    : hn::MulAdd(weight, hn::Set(d, decay), gradient);
}

} // namespace ampkit::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target include guard
