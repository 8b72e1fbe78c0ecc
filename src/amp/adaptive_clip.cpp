#include "amp/adaptive_clip.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace ampkit {
namespace {

/// The 2-norm of each row, shaped for broadcasting.
at::Tensor row_norms(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.dim() <= 1) {
    return at::linalg_vector_norm(tensor, 2, {}, false, dtype);
  }
  std::vector<int64_t> inside(tensor.dim() - 1);
  std::iota(inside.begin(), inside.end(), 1);
  return at::linalg_vector_norm(tensor, 2, inside, true, dtype);
}

} // namespace

void check_adaptive_clip(const AdaptiveClip& clip, const char* who) {
  TORCH_CHECK_VALUE(
      std::isfinite(clip.clip_factor) && clip.clip_factor > 0,
      who,
      ": clip_factor must be finite and > 0, got ",
      clip.clip_factor);
  TORCH_CHECK_VALUE(
      std::isfinite(clip.eps) && clip.eps > 0,
      who,
      ": eps must be finite and > 0, got ",
      clip.eps);
}

at::Tensor clipped_adaptively(
    const at::Tensor& grad,
    const at::Tensor& weight,
    const AdaptiveClip& clip) {
  const auto dtype = grad.scalar_type();
  const auto limit =
      row_norms(weight, dtype).clamp_min_(clip.eps).mul_(clip.clip_factor);
  const auto norm = row_norms(grad, dtype);
  // Rows within the limit keep their bits; so does one that is not finite,
  // whose infinities a product with 0 would turn into NaN.
  const auto factor = at::where(
      (norm > limit).logical_and_(norm.isfinite()),
      limit / norm,
      at::ones_like(norm));
  return grad * factor;
}

} // namespace ampkit
