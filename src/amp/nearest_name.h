#pragma once

#include <string>
#include <vector>

namespace ampkit {

/// The name among `known` with the fewest letters changed, added or missing
/// from a mistyped one; empty if a third of them or more differ.
std::string nearest_name(
    const std::string& typed, const std::vector<std::string>& known);

} // namespace ampkit
