#include <ampkit/diagnose/magnitudes.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "diagnose/op_observer.h"

namespace ampkit::diagnose {
namespace {

constexpr size_t kBins = Magnitudes::kHighest - Magnitudes::kLowest + 1;

struct DtypeRange {
  int smallest_normal; // exponent
  int largest; // exponent
  double largest_value;
};

DtypeRange range_of(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return {-14, 15, 65504};
    case at::kBFloat16:
      return {-126, 127, 0x1.FEp127};
    case at::kFloat:
      return {-126, 127, std::numeric_limits<float>::max()};
    default:
      TORCH_CHECK_VALUE(
          false,
          "Magnitudes: dtype must be Half, BFloat16 or Float, got ",
          dtype);
  }
}

} // namespace

void Magnitudes::add_one(double value) {
  ++elements_;
  const double magnitude = std::abs(value);
  if (!std::isfinite(magnitude)) {
    ++non_finite_;
  } else if (magnitude == 0) {
    ++zeros_;
  } else {
    const int exponent = std::clamp(std::ilogb(magnitude), kLowest, kHighest);
    ++bins_[static_cast<size_t>(exponent - kLowest)];
    amax_ = std::max(amax_, magnitude);
  }
}

void Magnitudes::add(const at::Tensor& tensor, double factor) {
  TORCH_CHECK_VALUE(
      is_watched(tensor),
      "Magnitudes::add: dtype must be Float, Double, Half or BFloat16, got ",
      tensor.scalar_type());
  const Unobserved unobserved;
  bins_.resize(kBins);
  const auto values = tensor.detach().to(at::kCPU);
  if (values.scalar_type() == at::kDouble) {
    const auto all = values.contiguous();
    const auto* data = all.const_data_ptr<double>();
    std::for_each(
        data, data + all.numel(), [&](double x) { add_one(x * factor); });
    return;
  }
  const auto all = values.to(at::kFloat).contiguous();
  const auto* data = all.const_data_ptr<float>();
  std::for_each(data, data + all.numel(), [&](float x) {
    add_one(static_cast<double>(x) * factor);
  });
}

int64_t Magnitudes::count(int exponent) const {
  const bool inside = exponent >= kLowest && exponent <= kHighest;
  return inside && !bins_.empty()
             ? bins_[static_cast<size_t>(exponent - kLowest)]
             : 0;
}

double Magnitudes::share_below(int exponent) const {
  int64_t below = 0;
  int64_t all = 0;
  for (int i = kLowest; i <= kHighest; ++i) {
    all += count(i);
    below += i < exponent ? count(i) : 0;
  }
  return all == 0 ? 0.0 : static_cast<double>(below) / static_cast<double>(all);
}

double Magnitudes::share_subnormal(c10::ScalarType dtype) const {
  return share_below(range_of(dtype).smallest_normal);
}

double Magnitudes::share_beyond(c10::ScalarType dtype) const {
  const int largest = range_of(dtype).largest;
  const bool any = elements_ > zeros_ + non_finite_;
  return any && largest < kHighest ? 1 - share_below(largest + 1) : 0.0;
}

double Magnitudes::headroom_bits(c10::ScalarType dtype) const {
  const double largest = range_of(dtype).largest_value;
  return amax_ == 0 ? std::numeric_limits<double>::infinity()
                    : std::log2(largest / amax_);
}

double recommended_loss_scale(const Magnitudes& gradients, int margin_bits) {
  TORCH_CHECK_VALUE(
      margin_bits >= 0,
      "recommended_loss_scale: margin_bits must not be negative, got ",
      margin_bits);
  if (gradients.amax() == 0) {
    return 1;
  }
  const double bits = gradients.headroom_bits(at::kHalf) - margin_bits;
  return std::exp2(std::floor(bits));
}

} // namespace ampkit::diagnose
