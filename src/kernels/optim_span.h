#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace ampkit::kernels {

/// The number formats that the optimizer kernels read and write.
enum class Float : uint8_t { fp32, fp16, bf16 };

inline size_t bytes_of(Float type) {
  return type == Float::fp32 ? 4 : 2;
}

/// A run of gradient elements.
struct GradientSpan {
  const void* data = nullptr;
  Float type = Float::fp32;
  size_t size = 0;
};

/// A run of elements of one parameter and of all that belongs to it. None of
/// the arrays overlap; no alignment is needed.
struct UpdateSpan {
  GradientSpan grad;
  /// Gradients are multiplied by it before use: 1 / divisor, negative to
  /// maximize; then limited to [-clip_value, clip_value].
  float grad_factor = 1;
  float clip_value = std::numeric_limits<float>::infinity();
  /// The parameter if it is fp32, else its fp32 master.
  float* weight = nullptr;
  /// The parameter if it is 16-bit, else null.
  void* mirror = nullptr;
  Float mirror_type = Float::fp32;
  /// Moments; null where an update rule has none.
  float* first = nullptr;
  float* second = nullptr;
  float* third = nullptr;
};

inline const void* advance(const void* data, size_t bytes) {
  return static_cast<const char*>(data) + bytes;
}

inline GradientSpan slice(const GradientSpan& all, size_t offset, size_t size) {
  return {advance(all.data, offset * bytes_of(all.type)), all.type, size};
}

/// `size` elements of `all` from element `offset` on.
inline UpdateSpan slice(const UpdateSpan& all, size_t offset, size_t size) {
  UpdateSpan part = all;
  part.grad = slice(all.grad, offset, size);
  part.weight += offset;
  if (part.mirror != nullptr) {
    part.mirror =
        static_cast<char*>(part.mirror) + offset * bytes_of(all.mirror_type);
  }
  if (part.first != nullptr) {
    part.first += offset;
  }
  if (part.second != nullptr) {
    part.second += offset;
  }
  if (part.third != nullptr) {
    part.third += offset;
  }
  return part;
}

} // namespace ampkit::kernels
