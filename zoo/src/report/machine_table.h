#pragma once

#include <string>
#include <string_view>

namespace ampkit::zoo {

/// A machine.json as HTML tables. Fields that are not there are left out, so
/// that files of other versions work; text that is no JSON object gives a
/// sentence that says so.
std::string machine_table(std::string_view json);

} // namespace ampkit::zoo
