#pragma once

#include <string>
#include <vector>

#include <ampkit/export.h>

namespace ampkit {

/// For "did you mean": the name among `known` that the fewest mistakes turn
/// into a mistyped one, the first of several; empty if there would be more than
/// a third of its letters, or more than two in a short one. A mistake is a
/// letter changed, added or missing, or two neighbours swapped.
AMPKIT_API std::string nearest_name(
    const std::string& typed, const std::vector<std::string>& known);

} // namespace ampkit
