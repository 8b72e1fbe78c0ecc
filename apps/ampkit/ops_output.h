#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <ampkit/amp/precision_policy.h>

#include "network.h"

namespace ampkit::app {

enum class OutputStyle {
  terminal, ///< for a person: headings, columns, wrapped at the width
  plain, ///< for other programs: one line an entry, tabs between columns
  json,
};

/// By what the standard output is.
OutputStyle terminal_or_plain();

/// What the user asked for.
struct OutputHead {
  std::string policy;
  std::string device;
  std::string network; ///< empty: the ops themselves
};

/// `policy`: whose module rules are part of the JSON.
void print_policy(
    std::ostream& out,
    OutputStyle style,
    const OutputHead& head,
    const std::vector<OpPolicyEntry>& ops,
    const PrecisionPolicy& policy);

void print_network(
    std::ostream& out,
    OutputStyle style,
    const OutputHead& head,
    const NetworkReport& report);

} // namespace ampkit::app
