#pragma once

#include <string_view>

namespace ampkit::zoo {

// Texts that the build put into the program; see embed_text.cmake.

/// Chart.js with its licence line; empty if it was not installed when ampkit
/// was configured.
std::string_view chart_js();

/// The report's own style and script.
std::string_view report_css();
std::string_view report_js();

} // namespace ampkit::zoo
