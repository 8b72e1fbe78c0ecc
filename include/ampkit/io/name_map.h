#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ampkit/export.h>
#include <ampkit/io/state_dict.h>

namespace ampkit::io {

/// From a name in a state to the name of the same entry elsewhere. An empty
/// text drops the entry.
using NameMap = std::function<std::string(const std::string& name)>;

/// Replaces the first of these prefixes that a name has, if any:
///
///     replace_prefixes({{"module.", ""}, {"encoder.", "net.encoder."}})
AMPKIT_API NameMap
replace_prefixes(std::vector<std::pair<std::string, std::string>> prefixes);

/// Applies every rule in order, each to all its matches in the name. Patterns
/// are ECMAScript's, replacements may have $1, $2, ...:
///
///     replace_patterns({{"^blocks\\.(\\d+)\\.", "layer$1."}})
///
/// Throws c10::ValueError, naming the pattern, if it is none.
AMPKIT_API NameMap
replace_patterns(const std::vector<std::pair<std::string, std::string>>& rules);

/// `state` under the names that `map` gives, in the same order. Throws
/// c10::Error with all names that two entries would have.
AMPKIT_API StateDict renamed(const StateDict& state, const NameMap& map);

} // namespace ampkit::io
