#include "optim/update_rule.h"

#include <c10/util/Exception.h>

namespace ampkit::optim {

std::vector<int64_t> UpdateRule::moment_shape(
    size_t, const at::Tensor& parameter) const {
  return parameter.sizes().vec();
}

void UpdateRule::update_on_cpu(std::span<const Work>, const GradientUse&) {
  TORCH_INTERNAL_ASSERT(false, name(), " has no kernel of its own");
}

std::vector<at::Tensor> StockBatch::moments(size_t i) const {
  std::vector<at::Tensor> moments;
  moments.reserve(records.size());
  for (const ParameterRecord* record : records) {
    moments.push_back(record->moments[i]);
  }
  return moments;
}

std::vector<at::Tensor> StockBatch::steps() const {
  std::vector<at::Tensor> steps;
  steps.reserve(records.size());
  for (const ParameterRecord* record : records) {
    steps.push_back(record->step_tensor);
  }
  return steps;
}

std::optional<at::Tensor> StockBatch::optional_found_inf() const {
  return found_inf.defined() ? std::optional(found_inf) : std::nullopt;
}

} // namespace ampkit::optim
