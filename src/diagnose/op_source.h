#pragma once

#include <string>

namespace ampkit::diagnose {

/// Where TorchScript code that runs on this thread stands: "net.py:12:8";
/// empty outside of it, or if it was saved without debug information.
std::string script_source_line();

} // namespace ampkit::diagnose
