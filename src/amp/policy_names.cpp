#include "amp/policy_names.h"

#include <algorithm>
#include <array>

#include <ampkit/amp/op_policy.h>
#include <c10/util/Exception.h>

namespace ampkit {
namespace {

constexpr std::array kDtypes{at::kFloat, at::kHalf, at::kBFloat16};

} // namespace

const std::vector<std::string>& op_rule_names() {
  static const std::vector<std::string> names{
      to_string(OpRule::inputs),
      to_string(OpRule::lower_precision),
      to_string(OpRule::float32),
      to_string(OpRule::promote),
      to_string(OpRule::refuse)};
  return names;
}

const std::vector<std::string>& module_dtype_names() {
  static const std::vector<std::string> names{"float32", "float16", "bfloat16"};
  return names;
}

c10::ScalarType parse_module_dtype(std::string_view name) {
  const auto& names = module_dtype_names();
  const auto found = std::ranges::find(names, name);
  TORCH_INTERNAL_ASSERT(found != names.end(), "no dtype ", name);
  return kDtypes.at(static_cast<size_t>(found - names.begin()));
}

const std::string& module_dtype_name(c10::ScalarType dtype) {
  const auto found = std::ranges::find(kDtypes, dtype);
  TORCH_INTERNAL_ASSERT(found != kDtypes.end(), "no module dtype ", dtype);
  return module_dtype_names().at(static_cast<size_t>(found - kDtypes.begin()));
}

} // namespace ampkit
