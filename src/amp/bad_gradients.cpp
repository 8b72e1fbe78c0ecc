#include "amp/bad_gradients.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

namespace ampkit {
namespace {

constexpr size_t kNamed = 3;

std::string to_text(const NonFiniteGradient& g) {
  return c10::str("'", g.name, "' (", g.elements, " of ", g.size, " values)");
}

} // namespace

BadGradients::BadGradients(
    const at::Tensor& counts,
    std::vector<std::string> names,
    std::vector<int64_t> sizes) {
  TORCH_INTERNAL_ASSERT(
      counts.numel() == static_cast<int64_t>(names.size()) &&
      names.size() == sizes.size());
  parts_.push_back({counts, std::move(names), std::move(sizes)});
}

void BadGradients::append(const BadGradients& other) {
  parts_.insert(parts_.end(), other.parts_.begin(), other.parts_.end());
}

std::vector<NonFiniteGradient> BadGradients::read() const {
  std::vector<NonFiniteGradient> found;
  for (const Part& part : parts_) {
    const auto counts = part.counts.to(at::kCPU).contiguous(); // waits
    const auto* count = counts.const_data_ptr<float>();
    for (size_t i = 0; i < part.names.size(); ++i) {
      if (count[i] > 0) {
        found.push_back(
            {part.names[i], static_cast<int64_t>(count[i]), part.sizes[i]});
      }
    }
  }
  return found;
}

std::string to_text(const std::vector<NonFiniteGradient>& gradients) {
  if (gradients.empty()) {
    return "none";
  }
  std::string text;
  const size_t named = std::min(gradients.size(), kNamed);
  for (size_t i = 0; i < named; ++i) {
    text += (i == 0 ? "" : ", ") + to_text(gradients[i]);
  }
  if (gradients.size() > named) {
    text += c10::str(" and ", gradients.size() - named, " more");
  }
  return text;
}

} // namespace ampkit
