#include <ampkit/diagnose/deviation.h>

#include <cmath>
#include <limits>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

namespace ampkit::diagnose {
namespace {

struct DtypeBits {
  int mantissa = 0; // without the implied one
  int min_exponent = 0; // of the smallest normal number
};

DtypeBits bits_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return {10, -14};
    case at::kBFloat16:
      return {7, -126};
    case at::kFloat:
      return {23, -126};
    case at::kDouble:
      return {52, -1022};
    default:
      TORCH_CHECK_VALUE(
          false,
          "deviation: expected Half, BFloat16, Float or Double, got ",
          dtype);
  }
}

// Of `dtype` at each element of `reference`, float64.
at::Tensor unit_in_last_place(const at::Tensor& reference, at::ScalarType d) {
  const auto [mantissa, min_exponent] = bits_of(d);
  // frexp() has the mantissa in [0.5, 1).
  const auto exponent = (std::get<1>(at::frexp(reference)) - 1)
                            .masked_fill(reference.eq(0), min_exponent);
  const auto floored = at::clamp_min(exponent, min_exponent) - mantissa;
  return at::pow(2.0, floored.to(at::kDouble));
}

double euclidean_norm(const at::Tensor& tensor) {
  return tensor.norm().item<double>();
}

double share(const at::Tensor& condition, double of) {
  return of == 0 ? 0 : condition.sum().item<double>() / of;
}

} // namespace

Deviation deviation(const at::Tensor& value, const at::Tensor& reference) {
  TORCH_CHECK_VALUE(
      value.sizes() == reference.sizes(),
      "deviation: expected tensors of one shape, got ",
      value.sizes(),
      " and ",
      reference.sizes());
  bits_of(reference.scalar_type());
  auto a = value.detach().to(at::kDouble);
  auto b = reference.detach().to(at::kDouble);
  const auto masked = b.isinf().logical_and(a.eq(b));
  a = a.masked_fill(masked, 0);
  b = b.masked_fill(masked, 0);
  const auto units = unit_in_last_place(b, value.scalar_type());
  Deviation result;
  result.flushed =
      share(a.eq(0).logical_and(b.ne(0)), b.ne(0).sum().item<double>());
  result.finite = a.isfinite().logical_and(b.isfinite()).all().item<bool>();
  if (!result.finite) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    result.relative = result.cosine = result.ulp = kNaN;
    return result;
  }
  if (a.numel() == 0) {
    return result;
  }
  const auto difference = a - b;
  const double distance = euclidean_norm(difference);
  const double size_a = euclidean_norm(a);
  const double size_b = euclidean_norm(b);
  result.relative = size_b > 0 ? distance / size_b : (distance > 0 ? 1 : 0);
  result.ulp = (difference.abs() / units).mean().item<double>();
  if (size_a > 0 && size_b > 0) {
    result.cosine =
        (a / size_a).mul(b / size_b).sum().clamp(-1, 1).item<double>();
  } else {
    result.cosine = size_a == size_b ? 1 : 0;
  }
  return result;
}

} // namespace ampkit::diagnose
