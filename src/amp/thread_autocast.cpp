#include "amp/thread_autocast.h"

#include <ATen/autocast_mode.h>

namespace ampkit {

ThreadAutocast& thread_autocast() {
  thread_local ThreadAutocast state;
  return state;
}

OpTarget ThreadAutocast::target(
    const OpEntry& op, size_t slot, at::ScalarType region_dtype, int module) {
  OpTarget result{
      .rule = policy != nullptr && policy->ops != nullptr
                  ? policy->ops->rule(slot, op)
                  : op.base_rule(slot),
      .dtype = region_dtype,
      .module = module};
  if (module >= 0) {
    current_module = module;
  }
  if (current_module < 0 || !bound() || !policy->modules->decides()) {
    return result;
  }
  const auto own = policy->modules->dtype(current_module);
  const bool lower = result.rule == OpRule::lower_precision;
  const bool open =
      result.rule == OpRule::inputs || result.rule == OpRule::promote;
  if (own == at::kFloat && (lower || (open && module >= 0))) {
    result.rule = OpRule::float32;
  } else if (own != at::kFloat && own != at::ScalarType::Undefined && lower) {
    result.dtype = own;
  }
  return result;
}

at::ScalarType promoted(
    at::ScalarType so_far, const at::Tensor& tensor, c10::DeviceType device) {
  const bool is_float = at::autocast::is_eligible(tensor, device) &&
                        tensor.scalar_type() == at::kFloat;
  return is_float ? at::kFloat : so_far;
}

void refuse(const OpEntry& op) {
  const auto name = op_table::printed(op.name);
  TORCH_CHECK(
      false,
      name,
      " is not safe in an autocast region",
      name == "binary_cross_entropy"
          ? ": the sigmoid before it has rounded in 16 bits; use "
            "binary_cross_entropy_with_logits, or make its inputs float32 "
            "and run it in Autocast(..., {.enabled = false})"
          : ": the policy refuses it; run it in Autocast(..., {.enabled = "
            "false}) or give it another rule with OpPolicy::set");
}

} // namespace ampkit
