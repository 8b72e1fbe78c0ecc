#include "flight_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <ampkit/diagnose/flight_recorder.h>

namespace ampkit::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFlightVariable = "AMPKIT_FLIGHT_DIR";

} // namespace

FlightFolder::FlightFolder() {
  if (const char* given = std::getenv(kFlightVariable)) {
    path_ = given;
    return;
  }
  std::error_code code;
  auto pattern =
      (fs::temp_directory_path(code) / "ampkit-flight-XXXXXX").string();
  // What can't be made is missed only if a rank dies.
  if (!code && mkdtemp(pattern.data()) != nullptr) {
    path_ = pattern;
    own_ = true;
    setenv(kFlightVariable, path_.c_str(), 1);
  }
}

FlightFolder::~FlightFolder() {
  if (own_) {
    unsetenv(kFlightVariable);
    std::error_code code;
    fs::remove_all(path_, code); // links, not what they lead to
  }
}

std::string FlightFolder::last_steps(int rank) const {
  const auto link = diagnose::flight_link(path_, rank);
  std::error_code code;
  if (path_.empty() || !fs::exists(link, code)) {
    return "";
  }
  const auto file = fs::read_symlink(link, code).string();
  return diagnose::describe_flight(link) + "all of it: " + file + "\n";
}

} // namespace ampkit::app
