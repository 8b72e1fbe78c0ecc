#pragma once

#include <string>

#include <ampkit/amp/precision_policy.h>

namespace ampkit::app {

/// A preset, or a file if the name ends in ".toml". Throws c10::ValueError as
/// PrecisionPolicy::preset() and load_precision_policy() do.
inline PrecisionPolicy policy_named(const std::string& name) {
  return name.ends_with(".toml") ? load_precision_policy(name)
                                 : PrecisionPolicy::preset(name);
}

} // namespace ampkit::app
