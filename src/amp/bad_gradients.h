#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ampkit/amp/step_result.h>

namespace ampkit {

/// Which gradients hold inf or NaN: on their device until read.
class BadGradients {
 public:
  /// None.
  BadGradients() = default;

  /// `counts`: fp32 [n], what is not finite in gradients of `sizes` elements.
  BadGradients(
      const at::Tensor& counts,
      std::vector<std::string> names,
      std::vector<int64_t> sizes);

  void append(const BadGradients& other);

  /// Waits for the device.
  std::vector<NonFiniteGradient> read() const;

 private:
  struct Part {
    at::Tensor counts;
    std::vector<std::string> names;
    std::vector<int64_t> sizes;
  };
  std::vector<Part> parts_;
};

/// "'fc.weight' (3 of 12 values), 'fc.bias' (4 of 4 values) and 2 more"; "none"
/// if there are none.
std::string to_text(const std::vector<NonFiniteGradient>& gradients);

} // namespace ampkit
