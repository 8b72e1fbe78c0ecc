#include "optim/update_rule.h"

#include <cmath>
#include <limits>

#include <c10/util/Exception.h>

namespace ampkit::optim {

std::vector<at::Tensor> UpdateRule::moments_of(
    const StockBatch& batch, size_t i) const {
  std::vector<at::Tensor> moments;
  moments.reserve(batch.records.size());
  for (const ParameterRecord* record : batch.records) {
    moments.push_back(record->moments[i]);
  }
  return moments;
}

void check_range(
    const char* who, const char* field, double value, double low, double high) {
  const bool bounded = std::isfinite(high);
  TORCH_CHECK_VALUE(
      std::isfinite(value) && value >= low && value < high,
      who,
      ": ",
      field,
      bounded ? c10::str(" must be in [", low, ", ", high, ")")
              : c10::str(" must be finite and >= ", low),
      ", got ",
      value);
}

} // namespace ampkit::optim
