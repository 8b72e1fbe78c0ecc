#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace ampkit {

/// Every name that parse_op_rule() takes.
const std::vector<std::string>& op_rule_names();

/// "float32", "float16", "bfloat16": what a module can be given.
const std::vector<std::string>& module_dtype_names();

/// Of a name in module_dtype_names().
c10::ScalarType parse_module_dtype(std::string_view name);

/// Reverse of parse_module_dtype().
const std::string& module_dtype_name(c10::ScalarType dtype);

} // namespace ampkit
