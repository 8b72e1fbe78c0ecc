#include "diagnose/op_source.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/jit/runtime/interpreter.h>

namespace ampkit::diagnose {

std::string script_source_line() {
  const auto stack = torch::jit::currentCallstack();
  for (const auto& entry : stack) { // innermost first
    if (const auto place = entry.range.file_line_col()) {
      const auto& [file, line, column] = *place;
      return c10::str(file, ":", line, ":", column);
    }
  }
  return {};
}

} // namespace ampkit::diagnose
