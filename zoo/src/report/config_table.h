#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ampkit::zoo {

/// A configuration as HTML, a table for each TOML table.
struct ConfigTable {
  std::string html;
  std::string precision; ///< precision.preset, or ""
  int64_t samples_per_step = 0; ///< of the optimizer; 0: unknown
};

/// Text that is no TOML is shown as it is.
ConfigTable config_table(std::string_view toml);

} // namespace ampkit::zoo
